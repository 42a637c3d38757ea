"""What writing tools make of a request that involves a price or two parties.

A quote is what the write charges. A call about rows of two parties is refused, whether or not a
rule says so: nobody pays with somebody else's card.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from astra.arena.expressions import ExpressionError, holds, scope_of
from astra.arena.traces import records_in
from astra.arena.world_runner import CallEnd, WorldRunner
from astra.records.base import canonical_json
from astra.records.state import Row
from astra.records.world import Enforced, ToolRole, TraceEvent, World, WorldTool
from astra.worlds.calls import CallDraw
from astra.worlds.declarations import priced_by
from astra.worlds.fuzz import Fuzzed, names_rule
from astra.worlds.parties import Parties
from astra.worlds.soundness import TRACE_OPERATORS, WorldFault, operators

_PAIRS = 12
"""Quotes that are held against a write."""
_PRICED_DRAWS = 400
"""Calls that are drawn for one that goes through."""
_OWN_CALLS, _FOREIGN = 12, 3
"""Calls of each tool that are made again with a key of another party, and with how many."""
_OPEN_ENDED = (ToolRole.DECLINE, ToolRole.HAND_OVER)


class DealingProof:
    """Tries the quotes and the writing tools of a world with the calls that went through before;
    ``checks`` counts the comparisons."""

    def __init__(
        self, world: World, runner: WorldRunner, draw: CallDraw, fuzzed: Fuzzed,
        rng: random.Random, checks: Counter[str],
    ) -> None:  # fmt: skip
        self._world, self._runner, self._draw = world, runner, draw
        self._fuzzed, self._rng, self._checks = fuzzed, rng, checks
        self._parties = Parties(world)
        self._keys = {table.name: table.key for table in world.tables}
        self._before = {table.name: {row[table.key]: row for row in world.rows[table.name]}
                        for table in world.tables}  # fmt: skip

    def faults(self) -> Iterator[WorldFault]:
        """What is wrong, tool by tool."""
        for tool in self._world.tools:
            if tool.role is ToolRole.QUOTE:
                for write in priced_by(self._world, tool):
                    yield from self._quoted(tool, write)
            elif tool.writes and tool.role not in _OPEN_ENDED and self._parties.table:
                yield from self._foreign(tool)
            self._runner.close()  # a session's CPU time is limited

    def _call(self, tool: WorldTool, arguments: Row) -> tuple[CallEnd, TraceEvent]:
        """One call from the start."""
        self._runner.reset()
        made = self._runner.call(tool.tool.name, arguments)
        self._runner.reset()
        return made.end, made.event

    def _quoted(self, quote: WorldTool, write: WorldTool) -> Iterator[WorldFault]:
        """What is quoted for a call is what the call writes."""
        taken = set(quote.tool.parameters.get("properties", {}))
        columns = {name for table in self._world.tables if table.name in write.writes
                   for name in (column.name for column in table.columns)}  # fmt: skip
        matched: dict[str, list[bool]] = defaultdict(list)
        told = ""
        calls = self._fuzzed.done[write.tool.name][:_PAIRS] or [*self._drawn(write)]
        for arguments in calls:
            asked = {name: arguments[name] for name in arguments if name in taken}
            end, offer = self._call(quote, asked)
            if end is not CallEnd.DONE:
                if any(names_rule(offer.failed, rule) for rule in self._world.rules):
                    continue
                why = f"refused ({offer.failed}), but {write.tool.name}({arguments}) goes through"
                yield WorldFault("other_quote", f"{quote.tool.name}({asked}): {why}")
                return
            end, made = self._call(write, arguments)
            self._checks["quotes"] += 1
            for name, number in self._numbers(quote, offer):
                matched[name].append(number in self._written(made, name if name in columns else ""))
                told = told if matched[name][-1] else f"({asked}): {name} {number}, {made.changes}"
        odd = [name for name, hits in matched.items()
               if not all(hits) and (any(hits) or name in columns)]  # fmt: skip
        if odd or (matched and not any(all(hits) for hits in matched.values())):
            why = f"{quote.tool.name}{told}, which is not what {write.tool.name} writes"
            yield WorldFault("other_quote", why)

    def _drawn(self, tool: WorldTool) -> Iterator[Row]:
        """Arguments of a call that goes through, if one is found."""
        for _ in range(_PRICED_DRAWS):
            arguments = self._draw.arguments(tool, self._world.rows)
            if self._call(tool, arguments)[0] is CallEnd.DONE:
                yield arguments
                return

    def _numbers(self, quote: WorldTool, offer: TraceEvent) -> Iterator[tuple[str, float]]:
        """What a quote computes: numbers that are no cells of the rows that it shows."""
        for record in records_in(offer.result):
            cells = {name for table, columns in quote.shows.items()
                     if self._keys[table] in record for name in columns}  # fmt: skip
            for name, value in record.items():
                if _is_number(value) and name not in cells:
                    yield name, value

    def _written(self, made: TraceEvent, column: str) -> set[float]:
        """The numbers that a call has written, and by how much it changed others; of one column
        where it is named."""
        found: set[float] = set()
        for change in made.changes:
            before = self._before[change.table].get(change.key, {})
            for name, cell in (change.row or {}).items():
                old = before.get(name)
                if _is_number(cell) and cell != old and column in ("", name):
                    found |= {cell, cell - old} if _is_number(old) else {cell}
        return found

    def _foreign(self, tool: WorldTool) -> Iterator[WorldFault]:
        """A call about rows of one party succeeds only where no row of another one is in it."""
        tables = {key: table for table, key in self._keys.items() if self._parties.owned(table)}
        own = [name for name in tool.tool.parameters.get("properties", {}) if name in tables]
        for arguments in self._fuzzed.done[tool.tool.name][:_OWN_CALLS]:
            keyed = {name: tables[name] for name in own if arguments.get(name) is not None}
            tries = [arguments]
            if len(keyed) > 1:
                tries += self._swapped(arguments, keyed)
            for tried in tries:
                if fault := self._mixed(tool, tried, keyed):
                    yield fault
                    return

    def _swapped(self, arguments: Row, keyed: Mapping[str, str]) -> Iterator[Row]:
        """The call with one key of somebody else's row, for each key in turn."""
        for name, table in keyed.items():
            whose = self._owners(table, arguments[name])
            others = [key for key in self._before[table] if not self._owners(table, key) & whose]
            for key in self._rng.sample(others, min(len(others), _FOREIGN)):
                yield arguments | {name: key}

    def _owners(self, table: str, key: str) -> set[str]:
        row = self._before[table].get(key)
        return set() if row is None else self._parties.of(table, row, {})

    def _mixed(self, tool: WorldTool, arguments: Row, keyed: Mapping[str, str]
               ) -> WorldFault | None:  # fmt: skip
        whose = {name: self._owners(table, arguments[name]) for name, table in keyed.items()}
        end, made = self._call(tool, arguments)
        self._checks["foreign_calls"] += 1
        if end is not CallEnd.DONE or self._forbidden(tool, arguments):
            return None
        called = f"{tool.tool.name}({arguments})"
        if len(set().union(*whose.values())) > 1:
            why = "is not refused, though these rows are of several parties"
            return WorldFault("foreign_row", f"{called} {why}: {canonical_json(whose_of(whose))}")
        later = {(one.table, one.key): one.row for one in made.changes if one.row is not None}
        for (table, _), row in later.items():
            if len(found := self._parties.of(table, row, later)) > 1:
                why = f"writes a row of {table} that leads to {sorted(found)}: {row}"
                return WorldFault("foreign_row", f"{called} {why}")
        return None

    def _forbidden(self, tool: WorldTool, arguments: Row) -> bool:
        """Whether a rule that nobody enforces forbids the call already."""
        scope = scope_of(self._world, arguments=arguments)
        for rule in self._world.rules:
            asked = operators(rule.when) | operators(rule.require)
            if rule.enforced is not Enforced.POLICY or tool.tool.name not in rule.tools:
                continue
            if asked & TRACE_OPERATORS:
                continue
            try:
                applies = rule.when is None or holds(rule.when, scope)
                if applies and not holds(rule.require, scope):
                    return True
            except ExpressionError:
                continue
        return False


def whose_of(whose: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Owners by argument, in an order that can be printed."""
    return {name: sorted(keys) for name, keys in whose.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
