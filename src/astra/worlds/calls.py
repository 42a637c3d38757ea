"""Arguments for calls that satisfy a tool's schema, drawn so that many of the calls succeed.

Keys are those of rows that belong together more often than not; some values are strange on
purpose: empty texts, unknown keys, dates that are none.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any, cast

from astra.records.state import Row, Tables
from astra.records.world import World, WorldTool
from astra.text.keys import key_of
from astra.text.values import draw_value

_STRANGE = ("", "?", "none of these", "0", "2026-02-30", "99999999999999999999")
_STRANGE_SHARE = 0.06
_GIVEN_SHARE = 0.5
"""How often an optional argument is given."""
_RELATED_SHARE = 0.85
_SAME_SHARE = 0.5
"""How often a row that an earlier one refers to is the one in the call."""
_EDGE_SHARE = 0.35
"""How often a number or a day is next to where a rule of the tool draws its line."""
_MOST_EDGE = 1_000
_FAR_SHARE = 0.2
"""How often a number is drawn from its whole range, not from the small end."""


class CallDraw:
    """Draws arguments for the tools of one world."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._rng = rng
        self._clock = date.fromisoformat(world.clock[:10])
        self._keys = {table.key: table.name for table in world.tables}
        self._references = {
            table.name: {column.name for column in table.columns if column.references}
            for table in world.tables
        }
        self._edges = {
            tool.tool.name: sorted(
                {number for rule in world.rules if tool.tool.name in rule.tools
                 for number in numbers_in([rule.when, rule.require])}
            )
            for tool in world.tools
        }  # fmt: skip

    def arguments(self, tool: WorldTool, tables: Tables, known: Row | None = None) -> Row:
        """Arguments for one call on the tables as they are; ``known`` are keys to go by."""
        schema = tool.tool.parameters
        required = set(schema.get("required", ()))
        related: Row = dict(known or {})
        anchors: dict[str, Row] = {}
        chosen: Row = {}
        for name, property_ in schema.get("properties", {}).items():
            if name not in required and self._rng.random() > _GIVEN_SHARE:
                continue
            chosen[name] = self._value(name, property_, tool, tables, related, anchors)
        return chosen

    def _value(
        self, name: str, schema: Mapping[str, Any], tool: WorldTool, tables: Tables,
        related: Row, anchors: dict[str, Row],
    ) -> Any:  # fmt: skip
        rng, type_ = self._rng, schema.get("type")
        if "enum" in schema:
            return rng.choice(schema["enum"])
        if type_ == "integer":
            return self._integer(schema, self._edges[tool.tool.name])
        if type_ != "string" or "pattern" in schema:
            return draw_value(dict(schema), rng, name)
        if rng.random() < _STRANGE_SHARE:
            return rng.choice(_STRANGE)
        if schema.get("format") == "date":
            return self._date(name, tool, tables)
        table = self._table_of(name)
        if table and tables[table]:
            return self._key(table, tables[table], related)
        return self._cell(name, tool, tables, anchors)

    def _integer(self, schema: Mapping[str, Any], edges: list[int]) -> int:
        least = schema.get("minimum", 0)
        most = schema.get("maximum", least + 60)
        if edges and self._rng.random() < _EDGE_SHARE:
            return min(max(self._near(edges), least), most)
        far = self._rng.random() < _FAR_SHARE
        return self._rng.randint(least, most if far else min(most, least + 6))

    def _date(self, name: str, tool: WorldTool, tables: Tables) -> str:
        """A day around today, or one that some row has."""
        edges = self._edges[tool.tool.name]
        if edges and self._rng.random() < _EDGE_SHARE:
            return (self._clock + timedelta(days=self._near(edges))).isoformat()
        held = [row[name] for table in tool.reads for row in tables[table] if row.get(name)]
        if held and self._rng.random() < 0.5:
            return self._rng.choice(held)
        return (self._clock + timedelta(days=self._rng.randint(-20, 60))).isoformat()

    def _near(self, edges: list[int]) -> int:
        """A number at an edge, or next to it."""
        return self._rng.choice(edges) + self._rng.choice((-1, 0, 1))

    def _table_of(self, name: str) -> str:
        """The table whose key a parameter is, by its name; ``new_loan_id`` is one of a loan."""
        return self._keys.get(key_of(name, self._keys), "")

    def _key(self, table: str, rows: list[Row], related: Row) -> str:
        key = next(key for key, named in self._keys.items() if named == table)
        fitting = rows
        if self._rng.random() < _RELATED_SHARE:
            columns = (self._references[table] | {key}) & set(related)
            if self._rng.random() > _SAME_SHARE:
                columns.discard(key)
            fitting = [row for row in rows if all(row[c] == related[c] for c in columns)] or rows
        row = self._rng.choice(fitting)
        for column in (key, *sorted(self._references[table])):
            related.setdefault(column, row[column])
        return row[key]

    def _cell(self, name: str, tool: WorldTool, tables: Tables, anchors: dict[str, Row]) -> str:
        """A cell of a column of that name, of one row for all parameters; else some word."""
        for table in (*tool.reads, *tables):
            rows = tables[table]
            if rows and name in rows[0] and isinstance(rows[0][name], str):
                row = anchors.setdefault(table, self._rng.choice(rows))
                return row[name]
        return f"{name} {self._rng.randint(1, 999)}"


def numbers_in(expr: Any) -> set[int]:
    """The whole numbers below a thousand in a tree: where it draws its lines."""
    if isinstance(expr, dict):
        return set[int]().union(*map(numbers_in, cast("dict[str, Any]", expr).values()))
    if isinstance(expr, list | tuple):
        return set[int]().union(*map(numbers_in, cast("list[Any]", expr)))
    whole = isinstance(expr, int) and not isinstance(expr, bool)
    return {expr} if whole and abs(expr) < _MOST_EDGE else set()
