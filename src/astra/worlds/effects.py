"""What a call writes, computed on the host from the tool's changes alone, apart from its code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from astra.arena.expressions import Scope, evaluate, holds
from astra.records.state import Row, WriteAction
from astra.records.world import Change, World, WorldTool
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
