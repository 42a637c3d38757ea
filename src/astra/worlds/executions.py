"""Traces executed in a world at little cost: no call is made twice from the same rows.

Tools depend on nothing but rows and arguments (stage ``worlds`` proves that), so a call after the
same successful writes gives the same. A goal's mutants share most of their calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from astra.arena.world_runner import CallEnd, WorldCall, WorldRunner
from astra.records.base import canonical_json
from astra.records.state import Row, Tables
from astra.records.world import EventKind, RowChange, TraceEvent, World
from astra.sandbox.protocol import Sandbox

_MOST_KEPT = 60_000
"""Calls that are kept; then they are forgotten."""
_TRIES = 3
"""Sessions that a call may end: thousands share one, whose time runs out under some of them."""
State = tuple[str, ...]
"""The successful writes since the start, each as text."""


class Executed(NamedTuple):
    """A trace with results and changes, and the rows at its end."""

    trace: tuple[TraceEvent, ...]
    tables: Tables

    @property
    def failed(self) -> list[TraceEvent]:
        """The calls that failed."""
        return [event for event in self.trace if event.failed]


class Executions:
    """Executes traces in one world. For one thread at a time; close it."""

    def __init__(self, world: World, sandbox: Sandbox) -> None:
        self._runner = WorldRunner(world, sandbox)
        self._base = self._runner.base
        self._state: State = ()
        self._writes: list[tuple[str, Row]] = []
        self._known: dict[tuple[State, str], WorldCall] = {}
        self.executed = 0
        """Calls that were made in the sandbox."""
        self.asked = 0
        """Calls whose outcome was asked for."""

    def run(self, events: Iterable[TraceEvent], withheld: Iterable[str] = ()) -> Executed:
        """The events with every call executed; a tool that is withheld fails until a turn of the
        user adds it."""
        away = set(withheld)
        state: State = ()
        writes: list[tuple[str, Row]] = []
        rows = dict(self._base.rows)
        trace: list[TraceEvent] = []
        for event in events:
            if event.kind != EventKind.CALL:
                away -= set(event.adds_tools)
                trace.append(event)
                continue
            if event.tool in away:
                failed = f"there is no tool {event.tool!r}"
                trace.append(_as(event, failed=failed, result=None, changes=()))
                continue
            made = self._call(state, writes, event.tool, event.arguments).event
            trace.append(_as(event, failed=made.failed, result=made.result, changes=made.changes))
            if made.changes:
                writes = [*writes, (event.tool, event.arguments)]
                state = (*state, _text(event.tool, event.arguments))
                rows = _after(rows, made.changes)
        return Executed(tuple(trace), {name: list(held.values()) for name, held in rows.items()})

    def call(self, tool: str, arguments: Row, after: Iterable[tuple[str, Row]] = ()) -> WorldCall:
        """One call after some writes, each of which must change something."""
        writes = list(after)
        return self._call(tuple(_text(*write) for write in writes), writes, tool, arguments)

    def close(self) -> None:
        self._runner.close()

    def _call(
        self, state: State, writes: list[tuple[str, Row]], tool: str, arguments: Row
    ) -> WorldCall:
        self.asked += 1
        place = (state, _text(tool, arguments))
        known = self._known.get(place)
        if known is None:
            self._go_to(state, writes)
            known = self._made(tool, arguments)
            if known.event.changes:
                self._state = (*state, place[1])
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            self._known[place] = known
        return known

    def _made(self, tool: str, arguments: Row) -> WorldCall:
        """A call in the sandbox, made again where it ended its session."""
        made = self._runner.call(tool, arguments)
        for _ in range(_TRIES - 1):
            if made.end is not CallEnd.ENDED:
                break
            made = self._runner.call(tool, arguments)
        self._runner.trace.clear()
        self.executed += 1
        return made

    def _go_to(self, state: State, writes: list[tuple[str, Row]]) -> None:
        """Bring the runner to where the writes have been made."""
        if self._state == state:
            return
        done = len(self._state)
        if state[:done] != self._state:
            self._runner.reset()
            self._state, done = (), 0
        for tool, arguments in writes[done:]:
            made = self._made(tool, arguments)
            if made.end is not CallEnd.DONE or not made.event.changes:
                raise RuntimeError(f"{tool}({arguments}) changed rows once and now does not")
        self._state = state

    def __enter__(self) -> Executions:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _after(
    rows: Mapping[str, Mapping[str, Row]], changes: Iterable[RowChange]
) -> dict[str, dict[str, Row]]:
    after: dict[str, Any] = dict(rows)
    copied: set[str] = set()
    for change in changes:
        if change.table not in copied:
            after[change.table] = dict(after[change.table])
            copied.add(change.table)
        if change.row is None:
            del after[change.table][change.key]
        else:
            after[change.table][change.key] = change.row
    return after


def _as(event: TraceEvent, **fields: Any) -> TraceEvent:
    return event.model_copy(update=fields)


def _text(tool: str, arguments: Row) -> str:
    return f"{tool}{canonical_json(arguments)}"
