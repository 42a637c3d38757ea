"""Whose a row is: the party that its references lead to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from astra.records.state import Row, Tables, WriteAction
from astra.records.world import OUTCOMES, ToolRole, World
from astra.worlds.soundness import WorldFault


class Parties:
    """The parties of a world and what belongs to each.

    A reference that some tool changes says who holds a row at the moment and not whose it is, so
    it leads nowhere.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        find = next(tool for tool in world.tools if tool.role is ToolRole.FIND)
        self.table = next(iter(find.shows), "")
        """The table of the parties; empty where the finding tool shows none."""
        changed = {(change.table, column) for tool in world.tools for change in tool.changes
                   if change.action is WriteAction.UPDATE for column in change.values}  # fmt: skip
        self._references = {
            table.name: {
                column.name: column.references for column in table.columns
                if column.references and (table.name, column.name) not in changed
            }
            for table in world.tables
        }  # fmt: skip
        self._keys = {table.name: table.key for table in world.tables}

    def owned(self, table: str) -> bool:
        """Whether rows of a table lead to a party: parties do, to themselves."""
        return self._leads(table, frozenset())

    def _leads(self, table: str, passed: frozenset[str]) -> bool:
        if table == self.table:
            return True
        nexts = set(self._references[table].values()) - passed
        return any(self._leads(other, passed | {table}) for other in nexts)

    def of(self, table: str, row: Mapping[str, Any], later: Mapping[tuple[str, str], Row]
           ) -> set[str]:  # fmt: skip
        """The keys of the parties that a row leads to; ``later`` are rows that calls have made."""
        if table == self.table:
            return {row[self._keys[table]]}
        found: set[str] = set()
        for column, other in self._references[table].items():
            key = row.get(column)
            target = later.get((other, key)) or self.rows[other].get(key) if key else None
            if target is not None and (other, key) != (table, row[self._keys[table]]):
                found |= self.of(other, target, later)
        return found

    @cached_property
    def rows(self) -> dict[str, dict[str, Row]]:
        """The rows at the start by table and key."""
        return {table.name: {row[table.key]: row for row in self._world.rows[table.name]}
                for table in self._world.tables}  # fmt: skip


def party_faults(world: World, rows: Tables) -> Iterator[WorldFault]:
    """Rows whose references lead to two parties: one of them is somebody else's."""
    parties = Parties(world)
    for table, some in rows.items():
        for row in some if table != OUTCOMES else ():
            if len(found := parties.of(table, row, {})) > 1:
                yield WorldFault("two_parties", f"{table}: {row} leads to {sorted(found)}")
                break
