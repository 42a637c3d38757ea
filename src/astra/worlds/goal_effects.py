"""What writes make of a world's rows by the tools' declared changes, and the net of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from astra.arena.expressions import all_rows, scope_of
from astra.records.state import Row, Tables, Write, WriteAction
from astra.records.world import OUTCOMES
from astra.worlds.effects import effects
from astra.worlds.view import WorldView


def after_all(view: WorldView, writes: Iterable[tuple[str, Row]]) -> Tables:
    """The rows after some calls, one after the other, computed on the host."""
    tables = all_rows(view.world)
    for tool, arguments in writes:
        scope = scope_of(view.world, tables, arguments=arguments)
        tables = with_rows(view, tables, effects(view.world, view.tools[tool], scope))
    return tables


def with_rows(
    view: WorldView, tables: Tables, made: Mapping[tuple[str, str], Row | None]
) -> Tables:
    """The tables with some rows as they are after a call."""
    after = dict(tables)
    for table in {table for table, _ in made}:
        key = view.tables[table].key
        rows: dict[str, Any] = {row[key]: row for row in tables[table]}
        rows |= {row_key: row for (name, row_key), row in made.items() if name == table}
        after[table] = [row for row in rows.values() if row is not None]
    return after


def net_writes(view: WorldView, writes: Iterable[tuple[str, Row]]) -> tuple[Write, ...]:
    """The least writes that make of the rows at the start what the calls make of them, but for
    ``outcomes``; sorted by table and key."""
    after, net = after_all(view, writes), list[Write]()
    for table in sorted(view.tables):
        if table == OUTCOMES:
            continue
        key, before = view.tables[table].key, view.rows[table]
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
