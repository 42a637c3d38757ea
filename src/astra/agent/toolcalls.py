"""Hermes/Qwen style tool calls in generated text: a tolerant parser and its inverse.

A block is ``<tool_call>\\n{"name": ..., "arguments": {...}}\\n</tool_call>``. Whatever is
inside a block becomes a ToolCall, also when it is broken: the episode answers a broken call
with an error message, and good calls of the same turn still run.
"""

from __future__ import annotations

import json
import re

from astra.records.message import Message, MessageRole, ToolCall

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_BLOCK = re.compile(re.escape(OPEN) + r"(.*?)(?:" + re.escape(CLOSE) + r"|$)", re.DOTALL)
_NAME = re.compile(r'"name"\s*:\s*"([^"]*)"')


def parse_assistant(text: str, first_id: int = 0) -> Message:
    """Split generated text into content and calls. Call ids are ``call_<n>`` from ``first_id``."""
    calls: list[ToolCall] = []
    for match in _BLOCK.finditer(text):
        name, arguments = _parse_block(match.group(1).strip())
        calls.append(ToolCall(id=f"call_{first_id + len(calls)}", name=name, arguments=arguments))
    content = _BLOCK.sub("", text).strip()
    return Message(role=MessageRole.ASSISTANT, content=content, tool_calls=tuple(calls))


def _parse_block(body: str) -> tuple[str, str]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict) and isinstance(document.get("name"), str):
        arguments = document.get("arguments", {})
        # Some models encode the object twice; the text inside is then the object itself.
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return document["name"], text
    name = _NAME.search(body)
    return (name.group(1) if name else ""), body


def render_call(name: str, arguments: str) -> str:
    """The block for a call whose ``arguments`` are JSON text."""
    return f'{OPEN}\n{{"name": {json.dumps(name)}, "arguments": {arguments}}}\n{CLOSE}'
