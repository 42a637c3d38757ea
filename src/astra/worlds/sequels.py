"""Writes on rows that other writes have left in another state: what has ended stays as it ended.

A long walk seldom comes by: a contract is cancelled, what it held is taken by another one, and
only then is the first contract changed again. Here each write of a row is followed by each write of
it, at once and after another has taken what both touch, and the rows have to be whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from astra.arena.world_runner import CallEnd, WorldRunner
from astra.records.state import Row
from astra.records.world import OUTCOMES, TraceEvent, World, WorldTool
from astra.text.keys import key_of
from astra.worlds.calls import CallDraw
from astra.worlds.fuzz import Fuzzed
from astra.worlds.soundness import WorldFault, row_faults

_FIRSTS, _TAKERS, _SEQUELS = 2, 6, 3
"""Calls of each tool that come first; that are tried to take a row; and that are made last."""
Call = tuple[str, Row]


class SequelProof:
    """Makes two and three calls in a row about the same rows; ``checks`` counts the successful."""

    def __init__(
        self, world: World, runner: WorldRunner, draw: CallDraw, fuzzed: Fuzzed,
        checks: Counter[str],
    ) -> None:  # fmt: skip
        self._world, self._runner, self._draw = world, runner, draw
        self._fuzzed, self._checks = fuzzed, checks
        self._keys = {table.name: table.key for table in world.tables if table.name != OUTCOMES}
        self._start = {table: {row[key]: row for row in world.rows[table]}
                       for table, key in self._keys.items()}  # fmt: skip
        self._writing = [tool for tool in world.tools if tool.changes]

    def faults(self) -> Iterator[WorldFault]:
        """The first fault after each tool."""
        for tool in self._writing:
            events = [event for event in self._fuzzed.first[tool.tool.name] if event.changes]
            yield from self._after(events[:_FIRSTS])
            self._runner.close()  # a session's CPU time is limited

    def _after(self, events: list[TraceEvent]) -> Iterator[WorldFault]:
        for event in events:
            first = (event.tool, event.arguments)
            changed = [
                (one.table, one.key) for one in event.changes
                if one.row is not None and one.key in self._start.get(one.table, {})
            ]  # fmt: skip
            named = [row for row in changed if row[1] in event.arguments.values()]
            for table, key in named:
                others = [row for row in changed if row not in named]
                for calls in ([first], *self._taken(first, others)):
                    if fault := self._sequel(calls, table, key):
                        yield fault
                        return

    def _taken(self, first: Call, rows: list[tuple[str, str]]) -> Iterator[list[Call]]:
        """The first call, and one that changes a row which it has changed besides its own."""
        for table, key in rows:
            for tool in self._writing:
                name = self._parameter(tool, table)
                for given in self._fuzzed.done[tool.tool.name][:_TAKERS] if name else ():
                    call = (tool.tool.name, {**given, name: key})
                    self._go_to([first])
                    made = self._runner.call(*call)
                    touched = {(one.table, one.key) for one in made.event.changes}
                    if made.end is CallEnd.DONE and (table, key) in touched:
                        yield [first, call]
                        break

    def _sequel(self, calls: list[Call], table: str, key: str) -> WorldFault | None:
        """What is wrong after one more call about the row, whatever tool makes it."""
        self._go_to(calls)
        for tool in self._writing:
            name = self._parameter(tool, table)
            for _ in range(_SEQUELS if name else 0):
                row = self._runner.row(table, key)
                if row is None:
                    break
                known = {column: row[column] for column in self._keys.values() if row.get(column)}
                given = {**self._draw.arguments(tool, self._runner.tables, known), name: key}
                made = self._runner.call(tool.tool.name, given)
                if made.end is not CallEnd.DONE:
                    continue
                self._checks["sequels"] += 1
                for fault in row_faults(self._world, self._runner.tables):
                    before = ", ".join(f"{one}({of})" for one, of in calls)
                    called = f"{tool.tool.name}({given}), which follows {before}"
                    return WorldFault(fault.reason, f"after {called}: {fault.detail}")
                self._go_to(calls)
        return None

    def _go_to(self, calls: list[Call]) -> None:
        self._runner.reset()
        for call in calls:
            self._runner.call(*call)

    def _parameter(self, tool: WorldTool, table: str) -> str:
        """The parameter of a tool that is a key of a table; empty for none."""
        names, keys = tool.tool.parameters.get("properties", {}), self._keys
        return next((one for one in names if key_of(one, keys.values()) == keys[table]), "")
