"""What the arguments of a tool that finds, lists or searches say of the rows that it shows.

An argument filters by the column that it is named as: of the rows that are listed, or of a row
that these refer to. ``new_berth_id`` goes by ``berth_id``; ``most_price`` and ``least_price`` are
bounds that count themselves; ``page`` is the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from astra.records.state import Row, Tables
from astra.records.world import ColumnType, ToolRole, World, WorldColumn, WorldTable, WorldTool
from astra.text.keys import key_of

LISTING = (ToolRole.FIND, ToolRole.LIST, ToolRole.SEARCH)
"""Roles of tools that show the rows which their arguments fit."""
PAGE_ARGUMENT = "page"
_ORDERED = (ColumnType.INTEGER, ColumnType.NUMBER, ColumnType.DATE)
How = Literal["eq", "most", "least"]
_BOUNDS: dict[str, How] = {"most_": "most", "least_": "least"}


@dataclass(frozen=True)
class RowFilter:
    """One argument and the column that it is compared with."""

    argument: str
    column: WorldColumn
    how: How

    def admits(self, cell: Any, value: Any) -> bool:
        """Whether a cell fits the argument."""
        if self.how == "eq":
            return cell == value
        if cell is None:
            return False
        return cell <= value if self.how == "most" else cell >= value

    def tolerates(self, cell: Any, value: Any) -> bool:
        """Whether a row may be shown all the same: a search for a text may look inside cells."""
        inside = self.how == "eq" and self.column.type is ColumnType.STRING
        if inside and isinstance(cell, str) and isinstance(value, str):
            return value.strip().casefold() in cell.casefold()
        return self.admits(cell, value)


@dataclass(frozen=True)
class ToolFilters:
    """The table whose rows a tool shows, and how its arguments choose among them."""

    table: WorldTable
    filters: tuple[RowFilter, ...]
    unknown: tuple[str, ...]
    """Arguments of which nothing says what they choose by."""


def filters_of(world: World, tool: WorldTool) -> ToolFilters:
    """The filters of a tool that shows some table."""
    table = _listed(world, tool)
    columns = {column.name: column for column in reversed(_reached(world, table))}
    keys = [one.key for one in world.tables if one.key in columns]
    filters: list[RowFilter] = []
    unknown: list[str] = []
    for name in tool.tool.parameters.get("properties", {}):
        if found := _filter(name, columns, keys):
            filters.append(found)
        elif name != PAGE_ARGUMENT:
            unknown.append(name)
    return ToolFilters(table, tuple(filters), tuple(unknown))


def _filter(name: str, columns: Mapping[str, WorldColumn], keys: list[str]) -> RowFilter | None:
    if name in columns:
        return RowFilter(name, columns[name], "eq")
    for prefix, how in _BOUNDS.items():
        column = columns.get(name.removeprefix(prefix)) if name.startswith(prefix) else None
        if column is not None and column.type in _ORDERED:
            return RowFilter(name, column, how)
    key = key_of(name, keys)
    return RowFilter(name, columns[key], "eq") if key else None


def _listed(world: World, tool: WorldTool) -> WorldTable:
    """The table that a tool shows whose rows refer to the others that it shows."""
    shown = [table for table in world.tables if table.name in tool.shows]
    return max(shown, key=lambda table: len(_tables_reached(world, table.name, ()) & {
        other.name for other in shown}))  # fmt: skip


def _tables_reached(world: World, name: str, passed: tuple[str, ...]) -> set[str]:
    found = {name}
    table = next(one for one in world.tables if one.name == name)
    for column in table.columns:
        if column.references and column.references not in (*passed, name):
            found |= _tables_reached(world, column.references, (*passed, name))
    return found


def _reached(world: World, table: WorldTable) -> list[WorldColumn]:
    """The columns of a table, then those of the tables that it refers to, nearest first."""
    tables = {one.name: one for one in world.tables}
    order, found = [table.name], list[WorldColumn]()
    for name in order:
        found += tables[name].columns
        order += [column.references for column in tables[name].columns
                  if column.references and column.references not in order]  # fmt: skip
    return found


def widened(world: World, table: WorldTable, tables: Tables) -> list[Row]:
    """The rows of a table, each with the cells of the rows that it refers to."""
    keyed = {one.name: {row[one.key]: row for row in tables[one.name]} for one in world.tables}
    shapes = {one.name: one for one in world.tables}
    wide: list[Row] = []
    for row in tables[table.name]:
        cells: Row = {}
        waiting, passed = [(table.name, row)], set[str]()
        while waiting:
            name, found = waiting.pop(0)
            passed.add(name)
            for column in shapes[name].columns:
                cells.setdefault(column.name, found[column.name])
                target = keyed.get(column.references, {}).get(found[column.name])
                if target is not None and column.references not in passed:
                    waiting.append((column.references, target))
        wide.append(cells)
    return wide
