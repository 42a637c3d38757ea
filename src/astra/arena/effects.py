"""What calls write, computed on the host from the tools' changes alone, apart from their code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from astra.arena.expressions import Scope, all_rows, evaluate, holds, scope_of
from astra.records.state import Row, Tables, Write, WriteAction
from astra.records.world import OUTCOMES, Change, World, WorldTool
from astra.sandbox.delta_session import derived_id

RowsAfter = dict[tuple[str, str], Row | None]
"""What became of rows, by table and key; None where one is gone."""


class EffectError(ValueError):
    """A change that does not fit the tables: no such row, or a new one without some cell."""


def effects(world: World, tool: WorldTool, scope: Scope) -> RowsAfter:
    """The rows that a successful call would change, as they are after it.

    ``scope`` holds the tables before the call and its arguments. Raises EffectError and
    ExpressionError.
    """
    names = {table.name: [column.name for column in table.columns] for table in world.tables}
    after: RowsAfter = {}
    arguments: dict[str, Any] = dict(scope.arguments)
    for change in tool.changes:
        there = replace(scope, arguments=arguments)
        if change.when is not None and not holds(change.when, there):
            continue
        cells = {column: evaluate(value, there) for column, value in change.values.items()}
        key = _key(change, there, after)
        place = (change.table, key)
        if change.action is WriteAction.DELETE:
            after[place] = None
            continue
        if change.action is WriteAction.INSERT:
            arguments = arguments | {change.binds: key}
            row = {scope.keys[change.table]: key} | cells
        else:
            row = (after.get(place) or _row(scope, *place)) | cells
        if set(row) != set(names[change.table]):
            odd = sorted(set(row) ^ set(names[change.table]))
            raise EffectError(f"{tool.tool.name}: a row of {change.table} and its columns: {odd}")
        after[place] = row
    return {place: row for place, row in after.items() if row != _before(scope, *place)}


def _key(change: Change, scope: Scope, after: Mapping[tuple[str, str], Any]) -> str:
    if change.action is not WriteAction.INSERT:
        return evaluate(change.key, scope)
    parts = tuple(evaluate(part, scope) for part in change.parts)

    def taken(key: str) -> bool:
        return (change.table, key) in after or _before(scope, change.table, key) is not None

    return derived_id(change.table, parts, taken)


def _before(scope: Scope, table: str, key: str) -> Row | None:
    return evaluate({"row": [table, key]}, scope)


def _row(scope: Scope, table: str, key: str) -> Row:
    row = _before(scope, table, key)
    if row is None:
        raise EffectError(f"{table} has no row {key!r} to change")
    return row


def rows_after(world: World, calls: Iterable[tuple[str, Row]]) -> Tables:
    """The rows after some successful calls from the start, one after the other."""
    tools = {tool.tool.name: tool for tool in world.tools}
    tables = all_rows(world)
    for name, arguments in calls:
        scope = scope_of(world, tables, arguments=arguments)
        tables = with_rows(world, tables, effects(world, tools[name], scope))
    return tables


def with_rows(world: World, tables: Tables, made: RowsAfter) -> Tables:
    """The tables with some rows as they are after a call."""
    keys = {table.name: table.key for table in world.tables}
    after = dict(tables)
    for table in {table for table, _ in made}:
        rows: dict[str, Any] = {row[keys[table]]: row for row in tables[table]}
        rows |= {row_key: row for (name, row_key), row in made.items() if name == table}
        after[table] = [row for row in rows.values() if row is not None]
    return after


def net_writes(world: World, calls: Iterable[tuple[str, Row]]) -> tuple[Write, ...]:
    """The least writes that make of the rows at the start what the calls make of them, but for
    ``outcomes``; sorted by table and key."""
    after, start, net = rows_after(world, calls), all_rows(world), list[Write]()
    for table, key in sorted((table.name, table.key) for table in world.tables):
        if table == OUTCOMES:
            continue
        before = {row[key]: row for row in start[table]}
        now = {row[key]: row for row in after[table]}
        for row_key in sorted({*before, *now}):
            old, new = before.get(row_key), now.get(row_key)
            if old == new:
                continue
            if new is None:
                net.append(_write(WriteAction.DELETE, table, {key: row_key}, {}))
            elif old is None:
                net.append(_write(WriteAction.INSERT, table, {}, new))
            else:
                cells = {column: cell for column, cell in new.items() if old.get(column) != cell}
                net.append(_write(WriteAction.UPDATE, table, {key: row_key}, cells))
    return tuple(net)


def _write(action: WriteAction, table: str, where: Row, values: Row) -> Write:
    return Write(action=action, table=table, where=where, values=values)
