"""Chat requests as prompts of ids and ids as replies: template, parser and history of training.

A conversation that goes on is not rendered again: where its last assistant message is one that
this server wrote, the prompt is the ids it was written with, followed by the template's
difference, as in a rollout. (Decoding and encoding sampled ids changes a third of them.) Replies
with one text and different thoughts are told apart by the thoughts that a client sends back. Tools
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
        self._known: OrderedDict[str, dict[tuple[str, ...], list[int]]] = OrderedDict()
        """Ids by conversation and then by the thoughts of its assistant messages."""
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
                known = self._recall(tools, messages[: last + 1])
                if known is not None:
                    self.continued += 1
                    return known + self.codec.suffix_ids(messages[last + 1 :])
        return self.codec.encode_prompt(messages, request.tools)

    def choice(self, request: ChatRequest, prompt: Sequence[int], generated: Generated) -> Choice:
        """What was written, as a message. Cut-off turns and stop texts end what can be used."""
        thought, spoken = split_thought(self.codec.decode(generated.ids))
        cut = min((at for stop in request.stop if (at := spoken.find(stop)) >= 0), default=-1)
        first = sum(len(message.tool_calls) for message in request.messages)
        ended = cut < 0 and generated.finish == "eos"
        whole, rest = (spoken, "") if ended else _whole(spoken[:cut] if cut >= 0 else spoken)
        message = parse_assistant(whole, first)
        content = message.content + rest
        finish: Literal["stop", "tool_calls", "length"] = "stop"
        if cut < 0 and generated.finish == "length":
            finish = "length"
        elif message.tool_calls:
            finish = "tool_calls"
        calls = message.tool_calls if request.parallel_calls else message.tool_calls[:1]
        if ended and calls == message.tool_calls:
            reply = message.model_copy(update={"reasoning": _bare(thought)})
            self._remember(request, reply, [*prompt, *generated.ids])
        return Choice(content, _bare(thought), calls, finish, generated.ids)

    def _remember(self, request: ChatRequest, reply: Message, ids: list[int]) -> None:
        messages = [*request.messages, reply]
        key = _key(request.tools, messages)
        self._known.setdefault(key, {})[_thoughts(messages)] = ids
        self._known.move_to_end(key)
        while sum(map(len, self._known.values())) > self._remembered:
            self._known.popitem(last=False)

    def _recall(self, tools: Sequence[Tool], messages: Sequence[Message]) -> list[int] | None:
        """The ids of a conversation; None where none have its thoughts, or several that differ."""
        key = _key(tools, messages)
        sent = _thoughts(messages)
        fitting = [ids for held, ids in self._known.get(key, {}).items() if _fits(sent, held)]
        if not fitting or any(ids != fitting[0] for ids in fitting):
            return None
        self._known.move_to_end(key)
        return fitting[0]


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


def _thoughts(messages: Sequence[Message]) -> tuple[str, ...]:
    return tuple(one.reasoning.strip() for one in messages if one.role == MessageRole.ASSISTANT)


def _fits(sent: Sequence[str], held: Sequence[str]) -> bool:
    """Whether these thoughts may be those: clients send all of them, the latest, or none."""
    return all(not one or one == other for one, other in zip(sent, held, strict=True))


def _arguments(call: ToolCall) -> Any:
    try:
        return json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call.arguments
