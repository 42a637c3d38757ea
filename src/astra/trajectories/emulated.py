"""Emulated servers: a model answers for tools that are documents only, the host keeps the state."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from astra.agent.episode import parse_arguments
from astra.llm.protocol import Ask, ParseError, Teacher
from astra.records.message import CallStatus, ToolCall, ToolResult
from astra.records.tool import Tool, ToolServer
from astra.text.names import suggested_names
from astra.trajectories.failures import FailureInjector
from astra.trajectories.schemas import violation

TEMPLATE = "trajectories/emulate"


class EmulatedReply(BaseModel):
    """The emulator's reply: what the tool would return.

    ``error`` is set, and ``result`` null, where the call would fail.
    """

    model_config = ConfigDict(extra="forbid")
    status: Literal["ok", "error"]
    result: Any = None
    error: str = ""


class EmulatedEnv:
    """One episode on an emulated server: the emulator sees every earlier call and result.

    Calls run one after the other in the order they arrive, since each may depend on the state
    that the one before left. A reply that violates the tool's output schema is a ParseError.
    """

    def __init__(
        self,
        server: ToolServer,
        tools: tuple[Tool, ...],
        emulator: Teacher,
        failures: FailureInjector,
        sample: int,
    ) -> None:
        self._server = server
        self._tools = tools
        self._by_name = {tool.name: tool for tool in tools}
        self._emulator = emulator
        self._failures = failures
        self._sample = sample
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
            failure = self._failures.draw(call.name)
            if failure is not None:
                return failure
            reply = await self._emulator.ask(self._ask(tool, arguments))
            result = self._result(tool, reply)
            self._state.append(
                {
                    "tool": tool.name,
                    "arguments": arguments,
                    "status": reply.status,
                    "result": reply.result,
                    "error": reply.error,
                }
            )
            return result

    async def close(self) -> None:
        return None

    def _ask(self, tool: Tool, arguments: dict[str, Any]) -> Ask[EmulatedReply]:
        variables: dict[str, Any] = {
            "server_id": self._server.id,
            "server": self._server.title or self._server.name,
            "server_description": self._server.description,
            "tool": tool.model_dump(mode="json", exclude={"original_name", "hints"}),
            "arguments": arguments,
            "state": list(self._state),
        }
        names = suggested_names(self._server.id, tool.name, arguments)
        return Ask(TEMPLATE, variables, EmulatedReply, self._sample, names=names)

    def _result(self, tool: Tool, reply: EmulatedReply) -> ToolResult:
        if reply.status == "error":
            line = " ".join(reply.error.split()) or "the call failed"
            text = line if line.startswith("error:") else f"error: {line}"
            return ToolResult(status=CallStatus.ERROR, content=text)
        if tool.output_schema is not None:
            problem = violation(reply.result, tool.output_schema)
            if problem:
                raise ParseError(
                    f"the emulator's result for {tool.name} violates its output schema: {problem}"
                )
        return ToolResult(
            status=CallStatus.OK, content=result_text(reply.result), value=reply.result
        )


def result_text(value: Any) -> str:
    """A typed result as the agent reads it: text as it is, everything else as compact JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
