"""What became of a world's rows, for people: rows that are new, gone or changed, cell by cell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from astra.records.state import Row, Tables
from astra.records.world import World

Cells = tuple[tuple[str, Any, Any], ...]


class RowDiff(NamedTuple):
    """One row that is not as it was."""

    table: str
    key: str
    before: Row | None
    """None: it is new."""
    after: Row | None
    """None: it is gone."""

    @property
    def sign(self) -> str:
        """``+`` new, ``-`` gone, ``~`` changed."""
        if self.before is None:
            return "+"
        return "-" if self.after is None else "~"

    @property
    def cells(self) -> Cells:
        """Column, value before and value after of each cell that differs, in the row's order."""
        before, after = self.before or {}, self.after or {}
        return tuple(
            (name, before.get(name), after.get(name))
            for name in (after or before)
            if before.get(name) != after.get(name)
        )


def table_diffs(world: World, before: Tables, after: Tables) -> list[RowDiff]:
    """The rows that differ, in the order of the world's tables and of their rows, new ones last.

    A table that one of them lacks counts as empty. Where two rows share a key the last is seen.
    """
    found: list[RowDiff] = []
    for table in world.tables:
        old, new = _by_key(before, table.name, table.key), _by_key(after, table.name, table.key)
        for key in (*old, *(key for key in new if key not in old)):
            if old.get(key) != new.get(key):
                found.append(RowDiff(table.name, key, old.get(key), new.get(key)))
    return found


def _by_key(tables: Tables, name: str, key: str) -> Mapping[str, Row]:
    return {str(row.get(key)): row for row in tables.get(name, ())}
