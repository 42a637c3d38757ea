"""The recorded exchanges of the SFT track, and the episodes that can be rebuilt from them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from astra.agent.episode import Episode, EpisodeLimits
from astra.records.message import CallStatus, Message, MessageRole, ToolCall, ToolResult
from astra.records.tool import Tool
from astra.trajectories.results import parse_result

FOLDER = Path(__file__).parents[1] / "fixtures" / "exchanges"
FIRST = "sft_track.jsonl.gz"
SIX_SERVERS = "six_servers.jsonl.gz"
LIMITS = EpisodeLimits(max_turns=20, max_calls=64, max_parallel_calls=16, max_result_chars=8192)


def recorded(file: str = FIRST) -> list[dict[str, Any]]:
    """All exchanges as they lie in a file: ``id``, ``ask`` (a chat request), ``answer``."""
    with gzip.open(FOLDER / file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def finished(exchanges: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The asks to an agent whose answer is a final message."""
    return [
        one for one in exchanges if "tools" in one["ask"] and not one["answer"].get("tool_calls")
    ]


def tools_of(exchange: dict[str, Any]) -> tuple[Tool, ...]:
    """The tools that the agent was offered."""
    return tuple(Tool(**tool["function"]) for tool in exchange["ask"]["tools"])


def conversation_of(exchange: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of an agent's ask with its answer as the last, in the chat API's form."""
    return [*exchange["ask"]["messages"], {"role": "assistant", **exchange["answer"]}]


def replayed(exchange: dict[str, Any]) -> Episode:
    """The episode of a finished exchange, played again turn by turn.

    A conversation's later user messages each open an episode on top of the one before, as stage
    ``trajectories`` does; the last one, with the whole transcript, is returned.
    """
    messages = conversation_of(exchange)
    results = {
        one["tool_call_id"]: one["content"] for one in messages if one["role"] == MessageRole.TOOL
    }
    tools = tools_of(exchange)
    before: list[Message] = []
    episode: Episode | None = None
    for message in messages:
        match message["role"]:
            case MessageRole.ASSISTANT:
                if episode is None:
                    episode = Episode(before, tools, LIMITS)
                calls = episode.offer(_spoken(message))
                if calls:
                    episode.observe([_result(call.name, results[call.id]) for call in calls])
            case MessageRole.TOOL:
                continue
            case role:
                before = [*(episode.messages if episode else before), _opening(role, message)]
                episode = None
    assert episode is not None, "a finished exchange ends with an assistant turn"
    return episode


def _opening(role: str, message: dict[str, Any]) -> Message:
    return Message(role=MessageRole(role), content=message["content"])


def _spoken(message: dict[str, Any]) -> Message:
    calls = tuple(
        ToolCall(
            id=call["id"], name=call["function"]["name"], arguments=call["function"]["arguments"]
        )
        for call in message.get("tool_calls") or ()
    )
    return Message(role=MessageRole.ASSISTANT, content=message["content"] or "", tool_calls=calls)


def _result(tool: str, text: str) -> ToolResult:
    """A tool message as the result it was made of; the host's failures have fixed texts."""
    if text == f"error: {tool} timed out":
        return ToolResult(status=CallStatus.TIMEOUT, content=text)
    if text == f"error: {tool} is unreachable":
        return ToolResult(status=CallStatus.UNREACHABLE, content=text)
    if text.startswith("error:"):
        return ToolResult(status=CallStatus.ERROR, content=text)
    return ToolResult(status=CallStatus.OK, content=text, value=parse_result(text))
