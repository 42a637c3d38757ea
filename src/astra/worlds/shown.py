"""What a tool shows, held against the rows: declared, true, asked for, and all that is declared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from astra.arena.traces import records_in
from astra.records.state import Row
from astra.records.world import ToolRole, TraceEvent, World, WorldTool
from astra.worlds.soundness import WorldFault

_ASKED_FOR = (ToolRole.FIND, ToolRole.GET, ToolRole.LIST)
"""Roles of tools that give the rows that they are asked for and no others."""


class LiveRows:
    """The rows of a world by key, from its start on through the calls that are taken over."""

    def __init__(self, world: World) -> None:
        self._rows = {table.name: {row[table.key]: row for row in world.rows[table.name]}
                      for table in world.tables}  # fmt: skip

    def after(self, event: TraceEvent, table: str, key: Any) -> Row | None:
        """A row after a call that is not taken over; one that the call removes, as it was."""
        for change in event.changes:
            if (change.table, change.key) == (table, key) and change.row is not None:
                return change.row
        return self._rows[table].get(key)

    def take(self, event: TraceEvent) -> None:
        """Take over what a call changed."""
        for change in event.changes:
            if change.row is None:
                self._rows[change.table].pop(change.key, None)
            else:
                self._rows[change.table][change.key] = change.row


class ShownRecords:
    """Judges the results of one tool, and keeps count of what they have shown."""

    def __init__(self, world: World, tool: WorldTool) -> None:
        self.tool = tool
        self._hidden = {column.name for table in world.tables for column in table.columns} - {
            column for columns in tool.shows.values() for column in columns
        }
        """Columns that its results may not hold."""
        self._keys = {table.key for table in world.tables}
        self._shown_keys = {t.name: t.key for t in world.tables if t.name in tool.shows}
        self._shown: set[tuple[str, str]] = set()
        """Tables and columns of which some record held a cell."""
        self._due: set[tuple[str, str]] = set()
        """Those of which a row that was shown has a value."""

    def fault(self, event: TraceEvent, rows: LiveRows) -> WorldFault | None:
        """What is wrong with the result of a successful call; ``rows`` are those before it."""
        names = {name for record in records_in(event.result) for name in record}
        undeclared = sorted(names & self._hidden) if self.tool.shows else []
        if undeclared or event.result is None:
            why = f"{self.tool.tool.name} shows {undeclared}, undeclared"
            return WorldFault("undeclared_column", why)
        return self._untrue(event, rows)

    def never_shown(self) -> Iterator[WorldFault]:
        """What the tool declares that it shows and no result has shown: tables, and columns of
        which a row that was shown has a value."""
        name = self.tool.tool.name
        for table, columns in self.tool.shows.items():
            if not any(one == table for one, _ in self._due | self._shown):
                yield WorldFault("never_shown", f"{name} never shows a row of {table}")
                continue
            for column in columns:
                if (table, column) in self._due - self._shown:
                    yield WorldFault("never_shown", f"{name} never shows {table}.{column}")

    def _untrue(self, event: TraceEvent, before: LiveRows) -> WorldFault | None:
        """A record in a result that is not what the rows with its keys say, or not one that was
        asked for."""
        called = f"{event.tool}({event.arguments})"
        keyless = [table for table, key in self._shown_keys.items()
                   if key not in self.tool.shows[table]]  # fmt: skip
        for record in records_in(event.result):
            rows = {table: before.after(event, table, record[key])
                    for table, key in self._shown_keys.items() if key in record}  # fmt: skip
            if None in rows.values():
                return WorldFault("untrue_record", f"{called}: {record} is of no row")
            for name, cell in record.items():
                said = [row[name] for table, row in rows.items()
                        if row and name in self.tool.shows[table]]  # fmt: skip
                if said and cell not in said:
                    return WorldFault("untrue_record", f"{called}: {name} is {said[0]!r}: {record}")
            if odd := self._other(event.arguments, record):
                return WorldFault("other_record", f"{called}: {odd} of {record}")
            for table, row in rows.items():
                self._count(table, row or {}, record)
            for table in keyless:  # of which row a record is cannot be told
                self._shown |= {(table, name) for name in self.tool.shows[table] if name in record}
        return None

    def _count(self, table: str, row: Row, record: Row) -> None:
        for column in self.tool.shows[table]:
            if row[column] is not None:
                self._due.add((table, column))
            if column in record:
                self._shown.add((table, column))

    def _other(self, arguments: Row, record: Row) -> list[str]:
        """Keys, and what a party was looked up by, in which a record is not what was asked for."""
        if self.tool.role not in _ASKED_FOR:
            return []
        named = set(arguments) if self.tool.role is ToolRole.FIND else self._keys
        return [name for name in sorted(named & set(arguments) & set(record))
                if arguments[name] is not None and arguments[name] != record[name]]  # fmt: skip
