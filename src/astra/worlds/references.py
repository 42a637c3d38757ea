"""Rows named by what they are: a predicate over cells that tools show, and which rows it fits."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from astra.records.state import Row, Tables
from astra.records.world import ColumnType, RowReference, ToolRole
from astra.worlds.view import WorldView

_SAYABLE = (ColumnType.DATE, ColumnType.INTEGER, ColumnType.NUMBER, ColumnType.ENUM,
            ColumnType.STRING)  # fmt: skip
_ORDERED = (ColumnType.DATE, ColumnType.INTEGER, ColumnType.NUMBER)


class Predicate(NamedTuple):
    """Cells that a row has and, of those rows, a column whose cell is the least or the most."""

    where: tuple[tuple[str, object], ...] = ()
    least: str = ""
    most: str = ""


def fitting(rows: Sequence[Row], predicate: Predicate) -> list[Row]:
    """The rows that a predicate fits; with ``least`` or ``most`` all that share the extreme."""
    left = [row for row in rows if all(row.get(name) == cell for name, cell in predicate.where)]
    for column, best in ((predicate.least, min), (predicate.most, max)):
        cells = [row[column] for row in left if column and row.get(column) is not None]
        if column:
            left = [row for row in left if cells and row[column] == best(cells)]
    return left


def of(reference: RowReference) -> Predicate:
    """The predicate of a reference."""
    return Predicate(tuple(sorted(reference.where.items())), reference.least, reference.most)


def among(view: WorldView, table: str, party: str, tables: Tables) -> list[Row]:
    """The rows that a user's words can be about: their own, or all where rows are nobody's."""
    if not view.is_owned(table):
        return tables[table]
    keyed = {
        name: {row[view.tables[name].key]: row for row in rows} for name, rows in tables.items()
    }
    return [row for row in tables[table] if view.owner(table, row, keyed) == party]


def sayable(view: WorldView, table: str) -> list[str]:
    """The columns of a table that a user may go by and that the listing tool shows."""
    tool = view.lister(table) or view.lister(table, ToolRole.SEARCH)
    shown = tool.shows[table] if tool is not None else ()
    return [c.name for c in view.tables[table].columns if c.type in _SAYABLE and c.name in shown]


def naming(
    view: WorldView, table: str, meant: Row, rows: Sequence[Row], rng: random.Random
) -> Predicate | None:
    """A predicate of at most two conditions that fits the meant row alone; None if none does."""
    columns = sayable(view, table)
    ordered = [c for c in columns if view.column(table, c).type in _ORDERED]
    options = [Predicate(((c, meant[c]),)) for c in columns if meant[c] is not None]
    options += [Predicate(least=c) for c in ordered] + [Predicate(most=c) for c in ordered]
    options += [
        Predicate(((c, meant[c]),), **{which: other})
        for c in columns if view.column(table, c).type is ColumnType.ENUM
        for other in ordered for which in ("least", "most")
    ]  # fmt: skip
    options += [
        Predicate(tuple(sorted(((one, meant[one]), (two, meant[two])))))
        for one, two in combinations(columns, 2)
    ]
    rng.shuffle(options)
    for option in options:
        alone = fitting(rows, Predicate(option.where)) == [meant]
        # The highest of one row is no way to speak of it.
        if fitting(rows, option) == [meant] and not (alone and (option.least or option.most)):
            return option
    return None


def loose(
    view: WorldView, table: str, meant: Row, rows: Sequence[Row], most: int
) -> tuple[Predicate, Predicate] | None:
    """Words that fit two to ``most`` rows, the meant one among them, and a fact that then fits it
    alone."""
    columns = sayable(view, table)
    enums = [c for c in columns if view.column(table, c).type is ColumnType.ENUM]
    for where in [(), *(((c, meant[c]),) for c in enums)]:
        left = fitting(rows, Predicate(where))
        if not 2 <= len(left) <= most:
            continue
        for column in columns:
            fact = Predicate(((column, meant[column]),))
            if column not in dict(where) and fitting(left, fact) == [meant]:
                return Predicate(where), fact
    return None
