"""Emulated servers: a model answers for tools that are documents only, the host keeps the state."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from astra.agent.episode import parse_arguments
from astra.llm.protocol import Ask, Teacher
from astra.records.message import CallStatus, ToolCall, ToolResult
from astra.records.tool import Tool, ToolServer
from astra.text.names import kinds_of_names, suggested_names
from astra.text.schemas import violation
from astra.trajectories.failures import FailureInjector
from astra.trajectories.stated import Thing

TEMPLATE = "trajectories/emulate"
STATE_CHARS = 24_000
"""How much of earlier results an ask shows whole, about 6,000 tokens; ours."""
HEAD_CHARS = 400
"""How much of an older result is left where all of them are more than that."""
MAX_ERROR_CHARS = 500
SHOWN_NEIGHBOURS = 64
"""How many of the server's other tools are named."""


class EmulatedReply(BaseModel):
    """The emulator's reply: what the tool would return.

    ``error`` is set, and ``result`` null, where the call would fail.
    """

    model_config = ConfigDict(extra="forbid")
    status: Literal["ok", "error"]
    result: Any = None
    error: str = ""


@dataclass(frozen=True)
class Setting:
    """What an emulated service is told of its episode, beside the calls."""

    known: tuple[Thing, ...] = ()
    """People and things that its users speak of, so they exist."""
    now: str = ""
    """Date and time as everyone in the episode knows them; empty: nobody is told."""


class EmulatedEnv:
    """One episode on an emulated server: the emulator sees every earlier call and result.

    Calls run one after the other in the order they arrive, since each may depend on the state
    that the one before left. A reply that violates the tool's schema of results, or is longer
    than ``max_result_chars``, is asked for again; ParseError if none is usable.
    """

    def __init__(
        self,
        server: ToolServer,
        tools: tuple[Tool, ...],
        emulator: Teacher,
        failures: FailureInjector,
        sample: int,
        max_result_chars: int,
        setting: Setting,
    ) -> None:
        self._server = server
        self._tools = tools
        self._by_name = {tool.name: tool for tool in tools}
        self._emulator = emulator
        self._failures = failures
        self._sample = sample
        self._max_result_chars = max_result_chars
        self._setting = setting
        self._state: list[dict[str, Any]] = []
        self._turn = asyncio.Lock()

    @property
    def tools(self) -> tuple[Tool, ...]:
        return self._tools

    async def execute(self, call: ToolCall) -> ToolResult:
        tool = self._by_name[call.name]
        arguments = parse_arguments(tool, call.arguments)
        async with self._turn:
            # A failed call never reached the tool: it leaves no trace in the state.
            failure = self._failures.draw(tool)
            if failure is not None:
                return failure
            reply = await self._emulator.ask(self._ask(tool, arguments))
            self._state.append({"tool": tool.name, "arguments": arguments, **reply.model_dump()})
            return _result(reply)

    async def close(self) -> None:
        return None

    def _ask(self, tool: Tool, arguments: dict[str, Any]) -> Ask[EmulatedReply]:
        # Of the whole server: for the service, what the agent is not shown is there as well.
        others = [other.name for other in self._server.tools if other.name != tool.name]
        inferred = None if tool.output_schema else tool.inferred
        variables: dict[str, Any] = {
            "server_id": self._server.id,
            "server": self._server.title or self._server.name,
            "server_description": self._server.description,
            "other_tools": others[:SHOWN_NEIGHBOURS],
            "tool": tool.model_dump(include={"name", "description", "parameters"}),
            "result_schema": tool.result_schema,
            "result_example": inferred.example if inferred else None,
            "arguments": arguments,
            "state": shown_state(self._state),
            "known": list(self._setting.known),
            "now": self._setting.now,
        }
        wanted = kinds_of_names(_texts(tool.result_schema))
        names = suggested_names(
            self._server.id, tool.name, arguments, kinds=wanted, language=self._server.language
        )
        limits = {"max_result_chars": self._max_result_chars}

        def check(reply: EmulatedReply) -> None:
            check_reply(reply, tool.result_schema, self._max_result_chars)

        return Ask(TEMPLATE, variables, EmulatedReply, self._sample, limits, names, check)


def _texts(schema: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every named place of a schema of results, nested ones and items of lists included."""
    if not isinstance(schema, Mapping):
        return
    if name:
        yield name, schema
    for inner, nested in schema.get("properties", {}).items():
        yield from _texts(nested, inner)
    yield from _texts(schema.get("items"))


def shown_state(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Earlier calls as an ask shows them, each with ``left_out``: how much of its result is not.

    Every call and its arguments stay, as they hold what was written. Where all results together
    are longer than ``STATE_CHARS``, of the oldest ones the beginning is left.
    """
    texts = [result_text(event["result"]) for event in events]
    surplus = sum(len(text) for text in texts) - STATE_CHARS
    shown: list[dict[str, Any]] = []
    for event, text in zip(events, texts, strict=True):
        left_out = len(text) - HEAD_CHARS
        if surplus > 0 and left_out > 0:
            surplus -= left_out
            shown.append({**event, "result": text[:HEAD_CHARS], "left_out": left_out})
        else:
            shown.append({**event, "left_out": 0})
    return shown


def check_reply(
    reply: EmulatedReply, schema: Mapping[str, Any] | None, max_result_chars: int
) -> None:
    """Raise ValueError if a reply cannot be what the service sends."""
    if reply.status == "error":
        if len(reply.error) > MAX_ERROR_CHARS:
            raise ValueError(f"`error` is longer than {MAX_ERROR_CHARS} characters; one short line")
        return
    problem = violation(reply.result, schema) if schema else ""
    if problem:
        raise ValueError(f"`result` violates the schema of the tool's results: {problem}")
    length = len(result_text(reply.result))
    if length > max_result_chars:
        raise ValueError(f"`result` has {length} characters; at most {max_result_chars} fit")


def _result(reply: EmulatedReply) -> ToolResult:
    if reply.status == "error":
        line = " ".join(reply.error.split()) or "the call failed"
        text = line if line.startswith("error:") else f"error: {line}"
        return ToolResult(status=CallStatus.ERROR, content=text)
    return ToolResult(status=CallStatus.OK, content=result_text(reply.result), value=reply.result)


def result_text(value: Any) -> str:
    """A typed result as the agent reads it: text as it is, everything else as JSON on one line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
