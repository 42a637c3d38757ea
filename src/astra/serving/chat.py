"""Chat requests as prompts of ids and ids as replies: template, parser and history of training.

A conversation that goes on is not rendered again: where its last assistant message is one that
this server wrote, the prompt is the ids it was written with, followed by the template's
difference, as in a rollout. (Decoding and encoding sampled ids changes a third of them.) Tools
that come later, whose documents the user's message holds, change nothing before it. Where the
template forgets thoughts once the user speaks again, it is rendered then.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Literal

from astra.agent.thoughts import THINK, THINK_END, split_thought
from astra.agent.toolcalls import CLOSE, OPEN, parse_assistant
from astra.arena.prompt import document
from astra.records.base import content_id
from astra.records.message import Message, MessageRole, ToolCall
from astra.records.tool import Tool
from astra.rollout.chat import ChatCodec
from astra.rollout.template_traits import Thoughts
from astra.serving.generation import Generated
from astra.serving.wire import ChatRequest, Choice

REMEMBERED = 4096
"""Conversations, the least recently continued forgotten first."""


class ChatHistory:
    """Prompts of requests as ids, and replies of ids, for one codec."""

    def __init__(self, codec: ChatCodec, remembered: int = REMEMBERED) -> None:
        self.codec = codec
        self.continued = 0
        """Prompts that went on from remembered ids."""
        self._known: OrderedDict[str, list[int]] = OrderedDict()
        self._remembered = remembered

    def prompt(self, request: ChatRequest) -> list[int]:
        """Ids up to and including the header of the assistant's turn."""
        messages = request.messages
        last = max(
            (at for at, one in enumerate(messages) if one.role == MessageRole.ASSISTANT),
            default=-1,
        )
        spoken = any(one.role == MessageRole.USER for one in messages[last + 1 :])
        forgets = spoken and self.codec.thoughts == Thoughts.CURRENT
        if 0 <= last < len(messages) - 1 and not forgets:
            before = _without_brought(request.tools, messages[last + 1 :])
            for tools in (request.tools, before):
                key = _key(tools, messages[: last + 1])
                known = self._known.get(key)
                if known is not None:
                    self._known.move_to_end(key)
                    self.continued += 1
                    return known + self.codec.suffix_ids(messages[last + 1 :])
        return self.codec.encode_prompt(messages, request.tools)

    def choice(self, request: ChatRequest, prompt: Sequence[int], generated: Generated) -> Choice:
        """What was written, as a message. Cut-off turns and stop texts end what can be used."""
        thought, spoken = split_thought(self.codec.decode(generated.ids))
        cut = min((at for stop in request.stop if (at := spoken.find(stop)) >= 0), default=-1)
        first = sum(len(message.tool_calls) for message in request.messages)
        if cut >= 0:
            message, rest = parse_assistant(spoken[:cut], first), ""
        elif generated.finish == "length":
            whole, rest = _whole(spoken)
            message = parse_assistant(whole, first)
        else:
            message, rest = parse_assistant(spoken, first), ""
        content = message.content + rest
        finish: Literal["stop", "tool_calls", "length"] = "stop"
        if cut < 0 and generated.finish == "length":
            finish = "length"
        elif message.tool_calls:
            finish = "tool_calls"
        if cut < 0 and generated.finish == "eos":
            self._remember(request, message, [*prompt, *generated.ids])
        return Choice(content, _bare(thought), message.tool_calls, finish, generated.ids)

    def _remember(self, request: ChatRequest, reply: Message, ids: list[int]) -> None:
        self._known[_key(request.tools, [*request.messages, reply])] = ids
        while len(self._known) > self._remembered:
            self._known.popitem(last=False)


def _bare(thought: str) -> str:
    """A thought as clients know it: without the tags that tell it from speech."""
    return thought.strip().removeprefix(THINK).removesuffix(THINK_END).strip()


def _whole(text: str) -> tuple[str, str]:
    """A text that was cut off, parted before the call that was being written."""
    start = text.rfind(OPEN)
    if start >= 0 and CLOSE not in text[start:]:
        return text[:start], text[start:]
    return text, ""


def _without_brought(tools: Sequence[Tool], messages: Sequence[Message]) -> list[Tool]:
    """The tools less those whose documents stand in a message of the user."""
    said = [one.content for one in messages if one.role == MessageRole.USER]
    return [tool for tool in tools if not any(document(tool) in text for text in said)]


def _key(tools: Sequence[Tool], messages: Sequence[Message]) -> str:
    """The key of a conversation however a client sends it back: with other ids of calls, or other
    spaces in JSON."""
    said = [
        [str(one.role), one.content.strip(), [[c.name, _arguments(c)] for c in one.tool_calls]]
        for one in messages
    ]
    return content_id([[tool.openai() for tool in tools], said])


def _arguments(call: ToolCall) -> Any:
    try:
        return json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call.arguments
