"""Hermes/Qwen style tool calls in generated text: a tolerant parser and its inverse.

A block is ``<tool_call>\\n{"name": ..., "arguments": {...}}\\n</tool_call>``. Whatever is
inside a block becomes a ToolCall, also when it is broken: the episode answers a broken call
with an error message, and good calls of the same turn still run.
"""

from __future__ import annotations

import json
import re

from astra.records.message import Message, MessageRole, ToolCall
from astra.text.strict_json import unique_keys

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_CLOSED = re.compile(r"\s*" + re.escape(CLOSE))
_NAME = re.compile(r'"name"\s*:\s*"([^"]*)"')


def parse_assistant(text: str, first_id: int = 0) -> Message:
    """Split generated text into content and calls. Call ids are ``call_<n>`` from ``first_id``."""
    calls: list[ToolCall] = []
    content: list[str] = []
    position = 0
    while (start := text.find(OPEN, position)) >= 0:
        content.append(text[position:start])
        body, position = _block(text, start + len(OPEN))
        name, arguments = _parse_block(body)
        calls.append(
            ToolCall(
                id=f"call_{first_id + len(calls)}", name=_clean(name), arguments=_clean(arguments)
            )
        )
    content.append(text[position:])
    joined = _clean("".join(content)).strip()
    return Message(role=MessageRole.ASSISTANT, content=joined, tool_calls=tuple(calls))


def _block(text: str, start: int) -> tuple[str, int]:
    """The body of the block that opened before ``start``, and where the text goes on.

    A JSON value followed by the closing tag is the body whatever its strings contain. Otherwise
    the block ends at the next closing tag, the next opening one or the end of the text.
    """
    begin = start
    while begin < len(text) and text[begin].isspace():
        begin += 1
    try:
        _, end = json.JSONDecoder().raw_decode(text, begin)
    except (ValueError, RecursionError):
        end = -1
    if end >= 0 and (closed := _CLOSED.match(text, end)):
        return text[begin:end], closed.end()
    close, again = text.find(CLOSE, start), text.find(OPEN, start)
    if close >= 0 and (again < 0 or close < again):
        return text[start:close].strip(), close + len(CLOSE)
    end = again if again >= 0 else len(text)
    return text[start:end].strip(), end


def _parse_block(body: str) -> tuple[str, str]:
    try:
        # Merging repeated keys here would hide from the episode that the call is malformed.
        document = json.loads(body, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict) and isinstance(document.get("name"), str):
        arguments = document.get("arguments", {})
        # Some models encode the object twice; the text inside is then the object itself.
        text = (
            arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        )
        return document["name"], text
    name = _NAME.search(body)
    return (name.group(1) if name else ""), body


def _clean(text: str) -> str:
    """Lone surrogates (``"\\ud800"`` in JSON) spelled out, since no record can hold them."""
    return text.encode("utf-8", "backslashreplace").decode()


def render_call(name: str, arguments: str) -> str:
    """The block for a call whose ``arguments`` are JSON text."""
    quoted = json.dumps(name, ensure_ascii=False)
    return f'{OPEN}\n{{"name": {quoted}, "arguments": {arguments}}}\n{CLOSE}'
