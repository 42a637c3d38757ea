"""Calls on a world outside of episodes: what makes and proves worlds, goals and mutants uses it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, Self

from astra.agent.episode import parse_arguments
from astra.arena.delta import DELTA, WorldBase, WorldCopy, world_sources
from astra.arena.results import failure_text
from astra.arena.state import VIOLATION
from astra.records.base import compact_json
from astra.records.state import Row, Tables
from astra.records.world import EventKind, TraceEvent, World
from astra.sandbox.protocol import (
    Sandbox,
    SandboxError,
    SandboxResult,
    SandboxStatus,
    Session,
)

_REFUSAL = "ValueError: "


class CallEnd(StrEnum):
    """How a call of a world's tool ended."""

    DONE = "done"
    REFUSED = "refused"  # the tool said no, by ValueError
    INVALID = "invalid"  # there is no such tool, or the arguments do not satisfy its schema
    VIOLATION = "violation"  # it changed what it may not
    CRASHED = "crashed"  # any other exception, or what it returned cannot leave the session
    ENDED = "ended"  # it ended its session: time, memory, exit


class WorldCall(NamedTuple):
    """A call as it stands in a trace, and how it ended."""

    event: TraceEvent
    end: CallEnd


class WorldRunner:
    """A world's tools in one session, and what their calls make of its rows.

    ``reset`` brings the world back to the start at the price of one short call. A session that
    dies is replaced at the next call and nothing is lost. For one thread at a time.
    """

    def __init__(self, world: World | WorldBase, sandbox: Sandbox) -> None:
        self.base = world if isinstance(world, WorldBase) else WorldBase(world)
        self._tools = {tool.tool.name: tool for tool in self.base.world.tools}
        self._sandbox = sandbox
        self._session: Session | None = None
        self._copy = WorldCopy(self.base)
        self.trace: list[TraceEvent] = []
        """What happened since the start or the last reset."""

    @property
    def tables(self) -> Tables:
        """The rows as the calls have left them; not to be changed."""
        return self._copy.tables

    def row(self, table: str, key: str) -> Row | None:
        """A row as the calls have left it."""
        return self._copy.row(table, key)

    def call(self, tool: str, arguments: Mapping[str, Any]) -> WorldCall:
        """Call a tool and add it to the trace. Raises SandboxError where no session is to be had,
        SandboxLoadError where the tools' code does not load."""
        given = dict(arguments)
        if tool not in self._tools:
            made = _failed(tool, given, f"there is no tool {tool!r}", CallEnd.INVALID)
        else:
            try:
                parse_arguments(self._tools[tool].tool, compact_json(given))
            except ValueError as error:
                made = _failed(tool, given, str(error), CallEnd.INVALID)
            else:
                made = self._called(tool, given)
        self.trace.append(made.event)
        return made

    def add(self, event: TraceEvent) -> None:
        """Add a turn of the user or a message of the agent to the trace."""
        self.trace.append(event)

    def replay(self, events: Iterable[TraceEvent]) -> tuple[TraceEvent, ...]:
        """The events anew from the start: calls are executed, all else is kept as it is."""
        self.reset()
        for event in events:
            if event.kind != EventKind.CALL:
                self.add(event)
                continue
            made = self.call(event.tool, event.arguments).event
            self.trace[-1] = made.model_copy(update={"provenance": event.provenance})
        return tuple(self.trace)

    def reset(self) -> None:
        """Bring the world back to the start and forget the trace."""
        self.trace = []
        request = self._copy.reset()
        if request is not None and self._session is not None and self._session.alive:
            self._session.call(DELTA, request)

    def close(self) -> None:
        """End the session; the next call opens another."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _called(self, tool: str, arguments: dict[str, Any]) -> WorldCall:
        result = self._attempt(tool, arguments)
        if result.status == SandboxStatus.INFRA:
            result = self._attempt(tool, arguments)
        if result.status == SandboxStatus.INFRA:
            raise SandboxError(
                f"world {self.base.world.id}: {tool} was not run: {result.error}; "
                "see `astra doctor`, then run the stage again"
            )
        result, changes = self._copy.take(tool, result)
        if result.status != SandboxStatus.OK:
            return _failed(tool, arguments, failure_text(result), _end_of(result))
        event = TraceEvent(
            kind=EventKind.CALL, tool=tool, arguments=arguments, result=result.value,
            changes=changes,
        )  # fmt: skip
        return WorldCall(event, CallEnd.DONE)

    def _attempt(self, tool: str, arguments: dict[str, Any]) -> SandboxResult:
        if self._session is None or not self._session.alive:
            code = {name: offer.code for name, offer in self._tools.items()}
            self._session = self._sandbox.session(world_sources(code))
        for request in self._copy.loading(self._session):
            loaded = self._session.call(DELTA, request)
            if loaded.status != SandboxStatus.OK:
                self._copy.unload()
                return loaded._replace(status=SandboxStatus.INFRA)
        return self._session.call(DELTA, self._copy.request(tool, arguments))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _failed(tool: str, arguments: dict[str, Any], why: str, end: CallEnd) -> WorldCall:
    event = TraceEvent(kind=EventKind.CALL, tool=tool, arguments=arguments, failed=why)
    return WorldCall(event, end)


def _end_of(result: SandboxResult) -> CallEnd:
    if result.status != SandboxStatus.EXCEPTION:
        return CallEnd.ENDED
    plain = result.error.removeprefix(_REFUSAL)
    if plain.startswith(VIOLATION):
        return CallEnd.VIOLATION
    return CallEnd.REFUSED if plain != result.error else CallEnd.CRASHED
