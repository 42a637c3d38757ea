"""An arena as an environment: its tools run in one isolated session per episode.

``ArenaEnv`` holds one episode. ``execute_batch`` runs calls of many episodes at once, so that
their sessions work side by side; every way of running a call goes through it.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from astra.agent.episode import parse_arguments
from astra.arena.delta import DELTA, WorldCopy, world_sources
from astra.arena.irrelevant import without_record
from astra.arena.results import tool_result
from astra.arena.state import entry_of, settle, state_of
from astra.arena.user import ScriptedUser, User, UserAnswer
from astra.arena.worlds import base_of, goal_of
from astra.errors import AstraError
from astra.records.environment import Arena, ArenaTool
from astra.records.message import CallStatus, ToolCall, ToolResult
from astra.records.qa import QuestionKind
from astra.records.state import Tables
from astra.records.tool import Tool
from astra.records.world import EventKind, RowChange, TraceEvent
from astra.sandbox.protocol import (
    Sandbox,
    SandboxError,
    SandboxLoadError,
    SandboxResult,
    SandboxStatus,
    Session,
)

VARIABLES_LOST = "the interpreter was started anew: its variables and imports are gone"
"""What a code interpreter's result adds when the call ended the session."""
Prepared = tuple[Session, str, Mapping[str, Any]]
"""A call ready to run: session, function and its arguments."""


class ArenaError(AstraError):
    """An arena cannot be opened: two tools share a name, or a tool's code does not load."""


class UserFault(AstraError):
    """A user said nothing, or what no user can say: such an episode is never scored."""


class ArenaLoadTimeout(ArenaError):
    """An arena's code did not load in time: a busy machine may be to blame, not the code."""


def offered(arena: Arena, extra_tools: Sequence[ArenaTool]) -> list[ArenaTool]:
    """The tools of an episode by name: the order in which the gold calls use them must not show."""
    return sorted((*arena.tools, *extra_tools), key=lambda offer: offer.tool.name)


class ArenaEnv:
    """The tools of one episode and the world that they share.

    The session is opened at the first call, or together with others' by ``open_envs``. One that
    died (timeout, crash) is replaced at the next call. Nothing is lost: what stateful tools change
    lives here, and each of their calls is given the world anew. Only a code interpreter keeps its
    variables in the session; then the call's result says they are gone.
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
        self._state = state_of(arena)
        self._world = self._state.world if self._state else None
        self._copy = WorldCopy(base_of(arena)) if arena.world_id else None
        self._trace: list[TraceEvent] = []
        self.user: User | None = None
        """Who answers the agent, by the goal's script unless somebody else is put in their place;
        None where nobody does, and the first message without a call is the last."""
        if self._copy is not None:
            goal = goal_of(arena)
            self._trace.append(goal.trace[0])
            if goal.script is not None:
                self.user = ScriptedUser(self._copy.base.world, goal)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The documents of the tools on offer, by name."""
        return tuple(offer.tool for offer in self._tools.values())

    @property
    def tables(self) -> Tables | None:
        """What the calls so far have made of the world; None for a read-only arena."""
        if self._copy is not None:
            return self._copy.tables
        return self._world.tables if self._world else None

    def is_stateful(self, name: str) -> bool:
        """Whether calls of the tool depend on each other through the world."""
        if self._copy is not None:
            return name in self._copy.base.writes
        return self._state is not None and name in self._state.writes

    @property
    def trace(self) -> tuple[TraceEvent, ...] | None:
        """What has happened in a persistent world, in order; None for any other arena."""
        return None if self._copy is None else tuple(self._trace)

    def say(self, text: str) -> None:
        """Note a message of the agent, which a goal in a world may ask for."""
        if self._copy is not None and text.strip():
            self._trace.append(TraceEvent(kind=EventKind.ASSISTANT, text=text))

    def reply(self) -> UserAnswer | None:
        """Ask the user for an answer to the agent's last message, and note it; None without one.

        Raises UserFault for an answer that is none, and what else the user raises (AstraError).
        """
        if self.user is None or self._copy is None:
            return None
        if self._trace[-1].kind != EventKind.ASSISTANT:
            # The agent said nothing at all: what it said before its last call is no answer.
            self._trace.append(TraceEvent(kind=EventKind.ASSISTANT))
        reply = self.user.reply(self.trace or (), self._copy.tables)
        turn = reply.turn
        known = {tool.tool.name for tool in self._copy.base.world.tools}
        if turn.kind != EventKind.USER or not turn.text.strip():
            raise UserFault(f"arena {self.arena.id}: the user said nothing")
        if strange := set(turn.adds_tools) - known:
            raise UserFault(
                f"arena {self.arena.id}: the user brings tools that its world does not have: "
                f"{', '.join(sorted(strange))}"
            )
        self.hear(turn)
        return reply

    def hear(self, turn: TraceEvent) -> None:
        """Note a turn of the user, and offer the tools that it brings. For worlds alone."""
        if self._copy is None:
            raise ValueError(f"arena {self.arena.id} has no world in which a user talks")
        self._trace.append(turn)
        brought = {tool.tool.name: tool for tool in self._copy.base.world.tools}
        for name in turn.adds_tools:
            self._tools[name] = ArenaTool(tool=brought[name].tool, code=brought[name].code)
        self._tools = dict(sorted(self._tools.items()))

    @property
    def is_interpreter(self) -> bool:
        """Whether the session itself holds what calls left behind."""
        return self.arena.kind == QuestionKind.CODE

    @property
    def sources(self) -> dict[str, str]:
        """Code by the function it defines; document-only tools have none."""
        if self._copy is not None:
            world = {tool.tool.name: tool.code for tool in self._copy.base.world.tools}
            extra = {name: offer.code for name, offer in self._tools.items() if offer.code}
            return {**{k: v for k, v in extra.items() if k not in world}, **world_sources(world)}
        return dict(
            entry_of(name, offer.code) if self.is_stateful(name) else (name, offer.code)
            for name, offer in self._tools.items()
            if offer.code
        )

    def open(self) -> None:
        """Start the session if none is alive.

        Raises ArenaError if the code does not load, SandboxUnavailable where no session is to be
        had.
        """
        if self._session is None or not self._session.alive:
            try:
                self._session = self.sandbox.session(self.sources)
            except SandboxLoadError as error:
                raise _load_failure(self.arena, error) from error

    def adopt(self, session: Session) -> None:
        """Use a session that was opened with ``sources``."""
        self._session = session

    def execute_now(self, call: ToolCall) -> ToolResult:
        """Run one call and wait for it."""
        return execute_batch([(self, call)])[0]

    async def execute(self, call: ToolCall) -> ToolResult:
        """Run one call. Calls of one turn may come together; they run one at a time, in order."""
        async with self._turn:
            return await asyncio.to_thread(self.execute_now, call)

    def close_now(self) -> None:
        """End the session; the next call opens another."""
        if self._session is not None:
            self._session.close()
            self._session = None

    async def close(self) -> None:
        """End the session, as the agent loop asks for it."""
        self.close_now()

    def prepare(self, call: ToolCall) -> Prepared | ToolResult:
        """The call ready to run; or its result, if it cannot run at all."""
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
            return without_record(offer.tool, arguments)
        try:
            self.open()
        except (SandboxError, ArenaLoadTimeout) as error:
            return ToolResult(status=CallStatus.INFRA, content=f"error: {error}")
        assert self._session is not None
        if self._copy is not None and self.is_stateful(call.name):
            for result in [self._session.call(DELTA, one) for _, _, one in self.loading()]:
                if fault := self.loaded(result):
                    return fault
            return self._session, DELTA, self._copy.request(call.name, arguments)
        if self._world is not None and self.is_stateful(call.name):
            entry, _ = entry_of(call.name, "")
            given = {"state": self._world.model_dump(), "arguments": arguments}
            return self._session, entry, given
        return self._session, call.name, arguments

    def loading(self) -> list[Prepared]:
        """The calls that bring an open session to where the arena's persistent world is."""
        if self._copy is None or self._session is None or not self._session.alive:
            return []
        return [(self._session, DELTA, one) for one in self._copy.loading(self._session)]

    def loaded(self, result: SandboxResult) -> ToolResult | None:
        """Take how one of the calls of ``loading`` ended; what a caller reads where it failed."""
        if result.status == SandboxStatus.OK or self._copy is None:
            return None
        self._copy.unload()
        return ToolResult(status=CallStatus.INFRA, content=f"error: no world: {result.error}")

    def finish(self, call: ToolCall, result: SandboxResult | ToolResult) -> ToolResult:
        """The result of a call as the model reads it, once the world is up to date with it."""
        changes: tuple[RowChange, ...] = ()
        if isinstance(result, SandboxResult):
            if self._copy is not None and self.is_stateful(call.name):
                result, changes = self._copy.take(call.name, result)
            else:
                result = self.take(call, result)
            result = tool_result(result)
        if self._copy is not None and result.status != CallStatus.INFRA:
            self._trace.append(_call_event(call, result, changes))
        return result

    def take(self, call: ToolCall, result: SandboxResult) -> SandboxResult:
        """Bring the world up to date with an executed call; the result as its caller sees it."""
        if self.is_interpreter and self._session is not None and not self._session.alive:
            return result._replace(error=f"{result.error}; {VARIABLES_LOST}")
        if self._state is None or self._world is None or not self.is_stateful(call.name):
            return result
        result, self._world = settle(self._state, call.name, self._world, result)
        return result


def open_envs(
    arenas: Sequence[tuple[Arena, tuple[ArenaTool, ...]]], sandbox: Sandbox
) -> list[ArenaEnv]:
    """Open many environments at once, each with its extra tools.

    Raises ArenaError, and SandboxUnavailable where the sandbox has no room for all of them.
    """
    envs = [ArenaEnv(arena, sandbox, extra) for arena, extra in arenas]
    failures = [failure for failure in open_sessions(envs, sandbox) if failure is not None]
    if failures:
        for env in envs:
            env.close_now()
        raise failures[0]
    return envs


def open_sessions(envs: Sequence[ArenaEnv], sandbox: Sandbox) -> list[ArenaError | None]:
    """Start the sessions of many environments at once; for each, why its code does not load.

    Raises SandboxUnavailable where the sandbox has no room for all of them.
    """
    failures: list[ArenaError | None] = []
    for env, session in zip(envs, sandbox.sessions([env.sources for env in envs]), strict=True):
        if isinstance(session, SandboxLoadError):
            failures.append(_load_failure(env.arena, session))
        else:
            env.adopt(session)
            failures.append(None)
    loads = [(env, one) for env in envs for one in env.loading()]
    if loads:
        done = sandbox.call_many([one for _, one in loads])
        for (env, _), result in zip(loads, done, strict=True):
            env.loaded(result)  # where it failed, the next call loads anew
    return failures


def _load_failure(arena: Arena, error: SandboxLoadError) -> ArenaError:
    kind = ArenaLoadTimeout if error.timed_out else ArenaError
    return kind(f"arena {arena.id} does not load: {error}")


def execute_batch(pairs: Sequence[tuple[ArenaEnv, ToolCall]]) -> list[ToolResult]:
    """Run calls of several episodes at once; results in the order of ``pairs``.

    Sessions work side by side; calls of one episode run in their order, and a stateful one
    starts when the world is what the one before it left. All environments must share one sandbox.
    """
    results: dict[int, ToolResult] = {}
    for wave in _waves(pairs):
        of_wave = _execute_retrying([pairs[at] for at in wave])
        results.update(zip(wave, of_wave, strict=True))
    return [results[at] for at in range(len(pairs))]


def _waves(pairs: Sequence[tuple[ArenaEnv, ToolCall]]) -> list[list[int]]:
    """Positions that may run together: of each episode one stateful call at most."""
    waves: list[list[int]] = []
    next_wave: Counter[int] = Counter()
    for at, (env, call) in enumerate(pairs):
        wave = next_wave[id(env)]
        if env.is_stateful(call.name):
            next_wave[id(env)] += 1  # what follows needs the world as this call leaves it
        while len(waves) <= wave:
            waves.append([])
        waves[wave].append(at)
    return waves


def _execute_retrying(pairs: Sequence[tuple[ArenaEnv, ToolCall]]) -> list[ToolResult]:
    """Results of one wave; calls that never ran are tried once more in a new session."""
    results = _execute(pairs)
    # A call that ended its session leaves those queued behind it unrun; they start afresh.
    lost = [
        at
        for at, result in enumerate(results)
        if _not_run(result) and not _lost_for_good(pairs[at][0], result)
    ]
    if lost:
        for position, result in zip(lost, _execute([pairs[at] for at in lost]), strict=True):
            results[position] = result
    return [env.finish(call, result) for (env, call), result in zip(pairs, results, strict=True)]


def _lost_for_good(env: ArenaEnv, result: ToolResult | SandboxResult) -> bool:
    """Whether another session cannot make up for a failure of ours: variables went with it."""
    return env.is_interpreter and result.status in (SandboxStatus.INFRA, CallStatus.INFRA)


def _not_run(result: ToolResult | SandboxResult) -> bool:
    """Whether a call never ran: the sandbox failed, or its session ended before its turn."""
    if isinstance(result, ToolResult):
        return False
    return result.status == SandboxStatus.INFRA or (
        result.status != SandboxStatus.OK and result.elapsed_s == 0.0
    )


def _execute(pairs: Sequence[tuple[ArenaEnv, ToolCall]]) -> list[ToolResult | SandboxResult]:
    results: list[ToolResult | SandboxResult] = []
    waiting: list[int] = []
    requests: list[Prepared] = []
    for env, call in pairs:
        prepared = env.prepare(call)
        if isinstance(prepared, ToolResult):
            results.append(prepared)
            continue
        waiting.append(len(results))
        requests.append(prepared)
        results.append(ToolResult(status=CallStatus.INFRA, content="error: not executed"))
    if requests:
        sandbox = pairs[waiting[0]][0].sandbox
        for position, result in zip(waiting, sandbox.call_many(requests), strict=True):
            results[position] = result
    return results


def _call_event(call: ToolCall, result: ToolResult, changes: tuple[RowChange, ...]) -> TraceEvent:
    """An executed call as it stands in a trace; arguments that are no object are left out."""
    failed = "" if result.status == CallStatus.OK else result.content.removeprefix("error: ")
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = None
    return TraceEvent(
        kind=EventKind.CALL, tool=call.name, failed=failed, result=result.value, changes=changes,
        arguments=arguments if isinstance(arguments, dict) else {},
    )  # fmt: skip
