"""A goal's executed program, of which variants are made."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

from astra.arena.traces import is_success, records_in
from astra.records.state import Row, Tables
from astra.records.world import EventKind, TraceEvent, WorldGoal
from astra.worlds.executions import Executions
from astra.worlds.view import WorldView
from astra.worlds.wishes import WishPool

Trace = tuple[TraceEvent, ...]


class Variant(NamedTuple):
    """A variant of a goal's program. ``spoil`` is done to the rows at its end."""

    name: str
    trace: Trace
    spoil: Callable[[Tables], Tables] | None = None


class ExecutedGoal:
    """A goal with its program executed: which events write, which read, whose goal it is."""

    def __init__(
        self, view: WorldView, executions: Executions, pool: WishPool, goal: WorldGoal
    ) -> None:
        self.view, self.executions, self.pool, self.goal = view, executions, pool, goal
        self.run = executions.run(goal.trace, goal.withheld)
        self.trace: Trace = goal.trace
        self.writes = [at for at, event in enumerate(self.run.trace) if event.changes]
        self.reads = [at for at, event in enumerate(self.run.trace)
                      if is_success(event) and not event.changes]  # fmt: skip

    @cached_property
    def acts(self) -> list[int]:
        """The writes but for those that end a request."""
        ending = (self.view.decline.tool.name, self.view.hand_over.tool.name)
        return [at for at in self.writes if self.trace[at].tool not in ending]

    @cached_property
    def party(self) -> str:
        """The key of the party that was looked up first."""
        for event in self.run.trace:
            if event.tool == self.view.find.tool.name:
                for record in records_in(event.result):
                    return str(record[self.view.party.key])
        return ""

    def replaced(self, at: int, *events: TraceEvent) -> Trace:
        """The trace with other events in place of one."""
        return (*self.trace[:at], *events, *self.trace[at + 1 :])


def without(trace: Trace, gone: set[int]) -> Trace:
    return tuple(event for at, event in enumerate(trace) if at not in gone)


def with_arguments(event: TraceEvent, arguments: Row) -> TraceEvent:
    return event.model_copy(update={"arguments": dict(arguments)})


def call_of(tool: str, arguments: Row) -> TraceEvent:
    return TraceEvent(kind=EventKind.CALL, tool=tool, arguments=dict(arguments))


def message(text: str) -> TraceEvent:
    return TraceEvent(kind=EventKind.ASSISTANT, text=text)
