"""An arena as an environment: its tools run in one isolated session per episode."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from astra.agent.episode import parse_arguments
from astra.errors import AstraError
from astra.records.environment import Arena, ArenaTool
from astra.records.message import CallStatus, ToolCall, ToolResult
from astra.records.tool import Tool
from astra.sandbox.protocol import (
    Sandbox,
    SandboxError,
    SandboxLoadError,
    SandboxResult,
    SandboxStatus,
    Session,
)

_STATUSES = {
    SandboxStatus.OK: CallStatus.OK,
    SandboxStatus.TIMEOUT: CallStatus.TIMEOUT,
    SandboxStatus.INFRA: CallStatus.INFRA,
}
"""Every other way a call can end is the tool's own failure: ERROR."""
_PLAIN_ERROR = "ValueError: "
"""What tools raise on purpose; its message alone is what the model should read."""


class ArenaError(AstraError):
    """An arena cannot be opened: two tools share a name, or a tool's code does not load."""


def offered(arena: Arena, extra_tools: Sequence[ArenaTool]) -> list[ArenaTool]:
    """The tools of an episode by name: the order in which the gold calls use them must not show."""
    return sorted((*arena.tools, *extra_tools), key=lambda offer: offer.tool.name)


class ArenaEnv:
    """Executes calls of one episode. Opened lazily, or together with others by ``open_envs``.

    A session that died (timeout, crash) is replaced at the next call: read-only tools keep no
    state, so nothing is lost.
    """

    def __init__(
        self, arena: Arena, sandbox: Sandbox, extra_tools: tuple[ArenaTool, ...] = ()
    ) -> None:
        offers = offered(arena, extra_tools)
        self._tools = {offer.tool.name: offer for offer in offers}
        if len(self._tools) != len(offers):
            names = ", ".join(offer.tool.name for offer in offers)
            raise ArenaError(f"arena {arena.id}: tool names are not unique: {names}")
        self.arena = arena
        self.sandbox = sandbox
        self._session: Session | None = None
        self._turn = asyncio.Lock()

    @property
    def tools(self) -> tuple[Tool, ...]:
        return tuple(offer.tool for offer in self._tools.values())

    @property
    def sources(self) -> dict[str, str]:
        """Code by tool name; document-only tools have none."""
        return {name: offer.code for name, offer in self._tools.items() if offer.code}

    def open(self) -> None:
        """Start the session if none is alive. Raises ArenaError if the code does not load."""
        if self._session is None or not self._session.alive:
            try:
                self._session = self.sandbox.session(self.sources)
            except SandboxLoadError as error:
                raise ArenaError(f"arena {self.arena.id} does not load: {error}") from error

    def adopt(self, session: Session) -> None:
        """Use a session that was opened with ``sources``."""
        self._session = session

    def execute_now(self, call: ToolCall) -> ToolResult:
        """Run one call and wait for it."""
        return execute_batch([(self, call)])[0]

    async def execute(self, call: ToolCall) -> ToolResult:
        """Calls of one turn arrive together; a session takes them one at a time, in order."""
        async with self._turn:
            return await asyncio.to_thread(self.execute_now, call)

    def close_now(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    async def close(self) -> None:
        self.close_now()

    def prepare(self, call: ToolCall) -> tuple[Session, Mapping[str, Any]] | ToolResult:
        """Where to run a call and with what; or its result, if it cannot run at all."""
        offer = self._tools.get(call.name)
        if offer is None:
            return ToolResult(
                status=CallStatus.UNKNOWN_TOOL, content=f"error: there is no tool {call.name!r}"
            )
        try:
            arguments = parse_arguments(offer.tool, call.arguments)
        except ValueError as error:
            return ToolResult(status=CallStatus.MALFORMED, content=f"error: {error}")
        if not offer.code:
            return ToolResult(status=CallStatus.ERROR, content=f"error: {call.name} is unreachable")
        try:
            self.open()
        except SandboxError as error:
            return ToolResult(status=CallStatus.INFRA, content=f"error: {error}")
        assert self._session is not None
        return self._session, arguments


def open_envs(
    arenas: Sequence[tuple[Arena, tuple[ArenaTool, ...]]], sandbox: Sandbox
) -> list[ArenaEnv]:
    """Open many environments at once, each with its extra tools. Raises ArenaError."""
    envs = [ArenaEnv(arena, sandbox, extra) for arena, extra in arenas]
    opened = sandbox.sessions([env.sources for env in envs])
    failure: ArenaError | None = None
    for env, session in zip(envs, opened, strict=True):
        if isinstance(session, SandboxLoadError):
            failure = failure or ArenaError(f"arena {env.arena.id} does not load: {session}")
        else:
            env.adopt(session)
    if failure is not None:
        for env in envs:
            env.close_now()
        raise failure
    return envs


def execute_batch(pairs: Sequence[tuple[ArenaEnv, ToolCall]]) -> list[ToolResult]:
    """Run calls of several episodes at once; results in the order of ``pairs``.

    Sessions work side by side; calls of one episode run in their order. All environments must
    share one sandbox.
    """
    results = _execute(pairs)
    # A call that ended its session leaves those queued behind it unrun; they start afresh.
    lost = [at for at, result in enumerate(results) if _not_run(result)]
    if lost:
        for position, result in zip(lost, _execute([pairs[at] for at in lost]), strict=True):
            results[position] = result
    return [tool_result(one) if isinstance(one, SandboxResult) else one for one in results]


def _not_run(result: ToolResult | SandboxResult) -> bool:
    if isinstance(result, ToolResult):
        return False
    return result.status == SandboxStatus.INFRA or (
        result.status != SandboxStatus.OK and result.elapsed_s == 0.0
    )


def _execute(pairs: Sequence[tuple[ArenaEnv, ToolCall]]) -> list[ToolResult | SandboxResult]:
    results: list[ToolResult | SandboxResult] = []
    waiting: list[int] = []
    requests: list[tuple[Session, str, Mapping[str, Any]]] = []
    for env, call in pairs:
        prepared = env.prepare(call)
        if isinstance(prepared, ToolResult):
            results.append(prepared)
            continue
        session, arguments = prepared
        waiting.append(len(results))
        requests.append((session, call.name, arguments))
        results.append(ToolResult(status=CallStatus.INFRA, content="error: not executed"))
    if requests:
        sandbox = pairs[waiting[0]][0].sandbox
        for position, result in zip(waiting, sandbox.call_many(requests), strict=True):
            results[position] = result
    return results


def tool_result(result: SandboxResult) -> ToolResult:
    """What the model reads of an execution: text as is, other values as compact JSON."""
    status = _STATUSES.get(result.status, CallStatus.ERROR)
    if status == CallStatus.OK:
        return ToolResult(status=status, content=result_text(result.value), value=result.value)
    reason = result.error.removeprefix(_PLAIN_ERROR) or result.status.value
    return ToolResult(status=status, content=f"error: {reason}")


def result_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
