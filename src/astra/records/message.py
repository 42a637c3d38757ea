"""Conversation messages and executed tool calls, in OpenAI's chat vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, ClassVar

from astra.records.base import Frozen, Sparse


class MessageRole(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class ToolCall(Frozen):
    """A call as the model wrote it. ``arguments`` is the raw JSON text: it may be malformed."""

    id: str
    name: str
    arguments: str


class Message(Sparse):
    """One message of a conversation."""

    sparse: ClassVar[tuple[str, ...]] = ("reasoning",)
    role: MessageRole
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    """The tool that answered; set in tool messages only."""
    reasoning: str = ""
    """What a thinking model thought before it wrote ``content``; assistant messages only. Never
    shown to a judge, a simulated user or a rule."""


REASONING_KEYS = ("reasoning_content", "reasoning")
"""The fields of a chat message in which servers and clients put a model's thoughts."""


def reasoning_of(message: Mapping[str, Any]) -> tuple[str, str]:
    """The thoughts of a chat message and the field that holds them; both empty without any."""
    for key in REASONING_KEYS:
        text = message.get(key)
        if isinstance(text, str) and text.strip():
            return text, key
    return "", ""


def without_thoughts(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages as they are for those who must not see what an agent thought."""
    return tuple(one.model_copy(update={"reasoning": ""}) for one in messages)


class CallStatus(StrEnum):
    """What became of a tool call. Decided by the host, never by text search in the result."""

    OK = "ok"
    ERROR = "error"  # the tool ran and reported a failure (exception, isError)
    SOFT_ERROR = "soft_error"  # reported success, but the payload says it failed
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    MALFORMED = "malformed"  # arguments are no JSON object, or violate the tool's schema
    UNKNOWN_TOOL = "unknown_tool"
    REFUSED = "refused"  # over the cap on parallel calls
    INFRA = "infra"  # our machinery failed; never counted against the model


class ToolResult(Frozen):
    """A tool's answer: ``content`` is what the model reads, ``value`` the typed result if any."""

    status: CallStatus
    content: str
    value: Any = None


class ExecutedCall(Frozen):
    """One call of an episode with its outcome. ``turn`` counts assistant turns from 0."""

    turn: int
    call: ToolCall
    result: ToolResult
