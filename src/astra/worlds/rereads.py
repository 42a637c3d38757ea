"""Rows read before and after they are changed: a tool shows what there is, whoever looked first.

A tool that keeps what it has shown once passes every check that never asks it twice about a row
that became another in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from astra.arena.world_runner import CallEnd, WorldRunner
from astra.records.state import Row
from astra.records.world import OUTCOMES, ToolRole, TraceEvent, World, WorldTool
from astra.worlds.calls import CallDraw
from astra.worlds.filters import widened
from astra.worlds.fuzz import Fuzzed
from astra.worlds.shown import LiveRows, ShownRecords
from astra.worlds.soundness import WorldFault

_WRITES = 3
"""Calls of each writing tool whose rows are read before and after."""
Read = tuple[str, Row]
"""A tool and the arguments of a call of it."""


class RereadProof:
    """Reads the rows that successful calls changed; ``checks`` counts the results compared."""

    def __init__(
        self, world: World, runner: WorldRunner, draw: CallDraw, fuzzed: Fuzzed,
        shown: Mapping[str, ShownRecords], checks: Counter[str],
    ) -> None:  # fmt: skip
        self._world, self._runner, self._draw = world, runner, draw
        self._fuzzed, self._shown, self._checks = fuzzed, shown, checks
        self._wide = {
            table.name: {row[table.key]: row for row in widened(world, table, world.rows)}
            for table in world.tables if table.name != OUTCOMES
        }  # fmt: skip

    def faults(self) -> Iterator[WorldFault]:
        """The first fault of the reads about what each tool writes."""
        for tool in self._world.tools:
            events = [event for event in self._fuzzed.first[tool.tool.name] if event.changes]
            plans = [(event, self._reads(event)) for event in events[:_WRITES]]
            self._runner.close()  # nothing of these rows is remembered
            cold = [self._made(event, reads, looked=False) for event, reads in plans]
            self._runner.close()
            warm = [self._made(event, reads, looked=True) for event, reads in plans]
            for (event, reads), one, other in zip(plans, cold, warm, strict=True):
                if fault := self._fault(event, reads, one, other):
                    yield fault
                    break
        self._runner.close()

    def _reads(self, event: TraceEvent) -> list[Read]:
        """Calls that may show the rows which a call changed, as they were before it."""
        reads: list[Read] = []
        for change in event.changes:
            row = self._wide.get(change.table, {}).get(change.key)
            for tool in self._world.tools if row is not None else ():
                if change.table in tool.shows and not tool.writes:
                    reads.append((tool.tool.name, self._arguments(tool, row or {})))
        return reads

    def _arguments(self, tool: WorldTool, row: Row) -> Row:
        """Arguments of a call about a row: its cells, where a parameter is named as one."""
        schema = tool.tool.parameters
        needed = set(schema.get("required", ()))
        own: Row = {}
        for name in schema.get("properties", {}):
            column = next((c for c in (name, *row) if name in (c, f"new_{c}") and c in row), "")
            if row.get(column) is not None and (name in needed or tool.role is ToolRole.FIND):
                own[name] = row[column]
        if needed <= set(own):
            return own
        drawn = self._draw.arguments(tool, self._world.rows, own)
        return {name: own.get(name, drawn.get(name)) for name in needed}

    def _made(self, event: TraceEvent, reads: list[Read], *, looked: bool) -> list[Any]:
        """What the reads give after the write, called once before it as well or not."""
        self._runner.reset()
        if looked:
            for name, arguments in reads:
                self._runner.call(name, arguments)
        self._runner.call(event.tool, event.arguments)
        made = [self._runner.call(name, arguments) for name, arguments in reads]
        self._runner.reset()
        return made

    def _fault(
        self, event: TraceEvent, reads: list[Read], cold: list[Any], warm: list[Any]
    ) -> WorldFault | None:
        """What one round of reads shows that is not so, or that the other does not show."""
        after = LiveRows(self._world)
        after.take(event)
        written = f"after {event.tool}({event.arguments})"
        for (name, arguments), one, other in zip(reads, cold, warm, strict=True):
            self._checks["rereads"] += 1
            for made in (one, other):
                fault = made.end is CallEnd.DONE and self._shown[name].fault(made.event, after)
                if fault:
                    return WorldFault(fault.reason, f"{fault.detail}; {written}")
            if (one.end, one.event.result) != (other.end, other.event.result):
                why = f"{name}({arguments}) gives another result where it was called before too"
                return WorldFault("not_repeatable", f"{why}; {written}")
        return None
