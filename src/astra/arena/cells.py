"""The cells of a world's tables that an agent was shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from astra.arena.traces import is_success, records_in
from astra.records.state import Row
from astra.records.world import TraceEvent, World, WorldTool

Cells = dict[tuple[str, str, str], Any]
"""Cells by table, key and column."""


def cells_seen(world: World, trace: Sequence[TraceEvent]) -> Cells:
    """The cells that successful calls have shown, as they last showed them."""
    seen: Cells = {}
    for cells in cells_by_event(world, trace):
        seen.update(cells)
    return seen


def cells_by_event(world: World, trace: Sequence[TraceEvent]) -> list[Cells]:
    """The cells that each event has shown: none but those of successful calls."""
    tools = {tool.tool.name: tool for tool in world.tools}
    return [
        cells_shown(world, tools[event.tool], event.result)
        if is_success(event) and event.tool in tools else {}
        for event in trace
    ]  # fmt: skip


def cells_shown(world: World, tool: WorldTool, result: Any) -> Cells:
    """The cells that a result of a tool shows."""
    cells: Cells = {}
    for record in records_in(result):
        cells.update(_cells_of(world, tool, record))
    return cells


def _cells_of(world: World, tool: WorldTool, record: Row) -> Cells:
    """The cells of tables that a record shows: of each table whose key it holds, the columns that
    the tool shows; one that several tables have belongs to the table that has most of the
    record's columns."""
    cells: Cells = {}
    shown = [
        (table, {column.name for column in table.columns})
        for table in world.tables
        if table.name in tool.shows and isinstance(record.get(table.key), str)
    ]
    shown.sort(key=lambda pair: -len(pair[1] & record.keys()))
    taken: set[str] = set()
    for table, columns in shown:
        own = (columns & record.keys()) - taken
        for column in (own & {*tool.shows[table.name]}) | {table.key}:
            cells[table.name, record[table.key], column] = record[column]
        taken |= own
    return cells
