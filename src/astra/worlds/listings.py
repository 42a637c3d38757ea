"""What tools show of many rows, held against the rows themselves: all that fit, and no others.

The arguments are chosen so that they tell something: cells of rows that are there, bounds that are
some row's own cell, one filter alone and several together. Pages are put together first.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, cast

from astra.arena.traces import records_in
from astra.arena.world_runner import CallEnd, WorldRunner
from astra.records.base import canonical_json
from astra.records.state import Row
from astra.records.world import ToolRole, World, WorldTool
from astra.worlds.filters import LISTING, PAGE_ARGUMENT, RowFilter, filters_of, widened
from astra.worlds.fuzz import names_rule
from astra.worlds.soundness import WorldFault
from astra.worlds.sources import PAGE

_ANCHORS = 12
"""Rows whose cells arguments are taken from."""
_ALIKE, _ALONE = 8, 3
"""Calls of a finding tool by cells that several rows share, and by cells of one row."""


class _Broken(Exception):
    """A result that is wrong whatever rows there are; a WorldFault."""

    def __init__(self, fault: WorldFault) -> None:
        self.fault = fault


class ListingProof:
    """Tries one tool of role find, list or search; ``calls`` counts the results compared."""

    def __init__(
        self, world: World, tool: WorldTool, runner: WorldRunner, rng: random.Random
    ) -> None:
        self._world, self._tool, self._runner, self._rng = world, tool, runner, rng
        declared = filters_of(world, tool)
        self._table, self._filters = declared.table, declared.filters
        self._columns = tool.shows[self._table.name]
        self._rows = widened(world, self._table, world.rows)
        properties = tool.tool.parameters.get("properties", {})
        self._paged = PAGE_ARGUMENT in properties
        self._required = [one for one in self._filters
                          if one.argument in tool.tool.parameters.get("required", ())]  # fmt: skip
        self._optional = [one for one in self._filters if one not in self._required]
        self.calls = 0

    def faults(self) -> Iterator[WorldFault]:
        """The first thing that is wrong, if any."""
        found = self._found if self._tool.role is ToolRole.FIND else self._listed
        try:
            yield from found()
        except _Broken as broken:
            yield broken.fault

    def _listed(self) -> Iterator[WorldFault]:
        asked: set[str] = set()
        for arguments in self._asks():
            identity = canonical_json(arguments)
            if identity not in asked:
                asked.add(identity)
                if fault := self._compared(arguments):
                    yield fault
                    return

    def _asks(self) -> Iterator[Row]:
        """What is required, alone, with each optional filter, and with several."""
        for anchor in self._rng.sample(self._rows, min(len(self._rows), _ANCHORS)):
            yield from self._anchored(anchor)
        if len(self._required) == 1:  # owners, of nothing too
            (one,) = self._required
            for table in self._world.tables:
                if table.key == one.column.name:
                    for owner in self._world.rows[table.name][:_ANCHORS]:
                        yield {one.argument: owner[table.key]}

    def _anchored(self, anchor: Row) -> Iterator[Row]:
        base = {one.argument: anchor.get(one.column.name) for one in self._required}
        if None in base.values():
            return
        optional = [one for one in self._optional if anchor.get(one.column.name) is not None]
        some = self._rng.sample(optional, min(2, len(optional)))
        for chosen in ([], *([one] for one in optional), some, optional):
            yield base | {one.argument: anchor[one.column.name] for one in chosen}

    def _fitting(self, arguments: Mapping[str, Any]) -> tuple[list[Row], list[Row]]:
        """The rows that have to be shown, and all that may be."""
        given = [one for one in self._filters if arguments.get(one.argument) is not None]
        right = [row for row in self._rows if all(_fits(one, row, arguments) for one in given)]
        fair = [row for row in self._rows
                if all(one.tolerates(row.get(one.column.name), arguments[one.argument])
                       for one in given)]  # fmt: skip
        return right, fair

    def _compared(self, arguments: Row) -> WorldFault | None:
        called = f"{self._tool.tool.name}({arguments})"
        right, fair = self._fitting(arguments)
        shown = self._shown(arguments)
        self.calls += 1
        if shown is None:
            hidden = bool(right) and bool(arguments)
            why = f"{called} is refused although {len(right)} rows fit"
            return WorldFault("missing_record", why) if hidden else None
        columns = [name for name in self._columns if not shown or name in shown[0]]
        counted = _counted(shown, columns)
        if missing := _counted(right, columns) - counted:
            return WorldFault("missing_record", f"{called} lacks {min(missing)}")
        if strange := counted - _counted(fair, columns):
            return WorldFault("other_record", f"{called} shows {min(strange)}")
        return None

    def _shown(self, arguments: Row) -> list[Row] | None:
        """The records of all pages; None where the call is refused."""
        if not self._paged:
            made = self._called(arguments)
            return None if made is None else self._records(made)
        first = self._called(arguments)
        if first is None:
            return None
        pages = self._pages(arguments, first, 1)
        records = self._items(first)
        for number in range(2, pages + 1):
            page = self._called(arguments | {PAGE_ARGUMENT: number})
            if page is None or self._pages(arguments, page, number) != pages:
                raise self._wrong(arguments, f"page {number} of {pages} is not there")
            if len(records) != (number - 1) * PAGE:
                raise self._wrong(arguments, f"page {number - 1} of {pages} is not full")
            records += self._items(page)
        beyond = self._called(arguments | {PAGE_ARGUMENT: pages + 1})
        if beyond is not None and self._items(beyond):
            raise self._wrong(arguments, f"page {pages + 1} of {pages} has rows")
        if pages != max(1, -(-len(records) // PAGE)):
            raise self._wrong(arguments, f"{pages} pages for {len(records)} rows")
        return records

    def _pages(self, arguments: Row, result: Any, number: int) -> int:
        pages = result.get("pages") if isinstance(result, dict) else None
        if not isinstance(pages, int) or cast("Row", result).get("page") != number or pages < 1:
            raise self._wrong(arguments, f"{str(result)[:120]} is not page {number}")
        return pages

    def _items(self, result: Any) -> list[Row]:
        items = cast("Row", result).get("items") if isinstance(result, dict) else None
        return self._records(items)

    def _wrong(self, arguments: Row, why: str) -> _Broken:
        found = f"{self._tool.tool.name}({arguments}): {why}"
        return _Broken(WorldFault("wrong_pages", f"{found}; {PAGE} rows belong on each"))

    def _records(self, result: Any) -> list[Row]:
        """The objects in a result that are of rows of the table."""
        known = {self._table.key} if self._table.key in self._columns else set(self._columns)
        return [record for record in records_in(result) if known & set(record)]

    def _called(self, arguments: Row) -> Any:
        """A call's result; None where a rule or the tool refuses it. Raises _Broken."""
        made = self._runner.call(self._tool.tool.name, arguments)
        if made.end is CallEnd.DONE:
            return made.event.result
        if made.end is not CallEnd.REFUSED or any(
            names_rule(made.event.failed, rule) for rule in self._world.rules
        ):
            raise _Broken(WorldFault(
                "unexpected_failure",
                f"{self._tool.tool.name}({arguments}): {made.event.failed}",
            ))  # fmt: skip
        return None

    def _found(self) -> Iterator[WorldFault]:
        """What finds one row finds the only one that fits, and every party can be found."""
        ways: list[tuple[RowFilter, ...]] = []
        for size in range(1, len(self._filters) + 1):
            for way in combinations(self._filters, size):
                if len(self._required) > sum(one in way for one in self._required):
                    continue
                if self._way(way):
                    ways.append(way)
        known: set[str] = set()
        for way in ways:
            counted = Counter(_cells(way, row) for row in self._rows)
            known |= {row[self._table.key] for row in self._rows
                      if counted[_cells(way, row)] == 1}  # fmt: skip
        for row in self._rows:
            if row[self._table.key] not in known:
                own = {name: row[name] for name in sorted({f.column.name for f in self._filters})}
                yield WorldFault(
                    "unidentified_party", f"{self._table.name}: no way to find {own} alone"
                )
                return

    def _way(self, way: tuple[RowFilter, ...]) -> bool:
        """Whether rows are found by these arguments together. Raises _Broken."""
        there = [row for row in self._rows if all(row.get(one.column.name) for one in way)]
        counted = Counter(_cells(way, row) for row in there)
        alike = [row for row in there if counted[_cells(way, row)] > 1]
        alone = [row for row in there if counted[_cells(way, row)] == 1]
        chosen = [*self._rng.sample(alike, min(len(alike), _ALIKE)),
                  *self._rng.sample(alone, min(len(alone), _ALONE))]  # fmt: skip
        works = False
        for row in chosen:
            arguments = {one.argument: row[one.column.name] for one in way}
            shown = self._shown(arguments)
            self.calls += 1
            if shown is None:
                continue
            works = True
            right, fair = self._fitting(arguments)
            columns = [name for name in self._columns if not shown or name in shown[0]]
            called, counted_rows = f"{self._tool.tool.name}({arguments})", _counted(shown, columns)
            if _counted(right, columns) - counted_rows:
                why = f"{called} shows {len(shown)} of the {len(right)} rows that fit"
                raise _Broken(WorldFault("first_of_several", why))
            if strange := counted_rows - _counted(fair, columns):
                raise _Broken(WorldFault("other_record", f"{called} shows {min(strange)}"))
        return works


def listing_faults(
    world: World, runner: WorldRunner, rng: random.Random, checks: Counter[str]
) -> Iterator[WorldFault]:
    """The first fault of each tool that shows the rows which its arguments fit."""
    runner.reset()
    for tool in world.tools:
        if tool.role in LISTING and tool.shows:
            proof = ListingProof(world, tool, runner, rng)
            yield from proof.faults()
            checks["listings"] += proof.calls
            runner.close()  # a session's CPU time is limited


def _fits(one: RowFilter, row: Row, arguments: Mapping[str, Any]) -> bool:
    return one.admits(row.get(one.column.name), arguments[one.argument])


def _cells(way: tuple[RowFilter, ...], row: Row) -> str:
    return canonical_json([row.get(one.column.name) for one in way])


def _counted(rows: list[Row], columns: list[str]) -> Counter[str]:
    return Counter(canonical_json({name: row.get(name) for name in columns}) for row in rows)
