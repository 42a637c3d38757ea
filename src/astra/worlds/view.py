"""What goals ask of a world: whose a row is, which tools show it, what a parameter stands for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from astra.arena.expressions import Scope, holds, scope_of
from astra.records.state import Row, Tables
from astra.records.world import (
    OUTCOMES,
    ColumnType,
    Enforced,
    Expr,
    PolicyRule,
    ToolRole,
    World,
    WorldColumn,
    WorldTable,
    WorldTool,
)
from astra.text.keys import key_of
from astra.worlds.soundness import operators

_ENDING = (ToolRole.DECLINE, ToolRole.HAND_OVER)
CONVERSATION = frozenset({"called", "seen", "distinct_seen", "confirmed"})
"""Operators about what happened in an episode, not about rows."""


class WorldView:
    """A world's tables and tools by what they are for. All rows are those at the start."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tools = {tool.tool.name: tool for tool in world.tools}
        self.tables = {table.name: table for table in world.tables}
        self.rules = {rule.id: rule for rule in world.rules}
        self.rows: dict[str, dict[str, Row]] = {
            table.name: {row[table.key]: row for row in world.rows.get(table.name, ())}
            for table in world.tables
        }
        self.find = next(tool for tool in world.tools if tool.role is ToolRole.FIND)
        self.decline = next(tool for tool in world.tools if tool.role is ToolRole.DECLINE)
        self.hand_over = next(tool for tool in world.tools if tool.role is ToolRole.HAND_OVER)
        self.party = next(table for table in self.tables.values() if table.name in self.find.shows)

    @cached_property
    def writing(self) -> list[WorldTool]:
        """The tools that change tables, but for those that end a request."""
        return [tool for tool in self.world.tools if tool.writes and tool.role not in _ENDING]

    @cached_property
    def policy_rules(self) -> list[PolicyRule]:
        """The rules that no tool enforces."""
        return [rule for rule in self.world.rules if rule.enforced is Enforced.POLICY]

    def noun(self, table: str) -> str:
        """What one row of a table is called."""
        return self.tables[table].key.removesuffix("_id").replace("_", " ")

    def table_of(self, parameter: str) -> WorldTable | None:
        """The table whose key a parameter takes, by its name."""
        keys = {table.key: table for table in self.tables.values() if table.name != OUTCOMES}
        return keys.get(key_of(parameter, keys))

    def column(self, table: str, name: str) -> WorldColumn:
        return next(column for column in self.tables[table].columns if column.name == name)

    def references(self, table: str) -> Iterator[tuple[str, str]]:
        """The columns of a table that hold keys, with the tables that they are of."""
        for column in self.tables[table].columns:
            if column.references:
                yield column.name, column.references

    def owner(self, table: str, row: Row, tables: Mapping[str, Mapping[str, Row]]) -> str:
        """The key of the party whose row it is, directly or through another row; empty if it is
        nobody's."""
        if table == self.party.name:
            return row[self.party.key]
        for column, other in self.references(table):
            if other == self.party.name and row[column]:
                return row[column]
        for column, other in self.references(table):
            refers = [name for _, name in self.references(other)]
            there = tables[other].get(row[column]) if self.party.name in refers else None
            if there is not None:
                return self.owner(other, there, tables)
        return ""

    def is_owned(self, table: str) -> bool:
        """Whether rows of a table belong to a party."""
        return any(
            other == self.party.name or any(two == self.party.name for _, two in
                                            self.references(other))
            for _, other in self.references(table)
        )  # fmt: skip

    def lister(self, table: str, role: ToolRole = ToolRole.LIST) -> WorldTool | None:
        """The tool of that role that shows the rows of a table."""
        tools = (t for t in self.world.tools if t.role is role and table in t.shows)
        return next(tools, None)

    def parameters(self, tool: str) -> Mapping[str, Any]:
        return self.tools[tool].tool.parameters.get("properties", {})

    def required(self, tool: str) -> tuple[str, ...]:
        return tuple(self.tools[tool].tool.parameters.get("required", ()))

    def governing(self, tool: str, operator: str) -> PolicyRule | None:
        """The rule without an enforcing tool that asks of a call what only an operator tells."""
        rules = (
            rule
            for rule in self.policy_rules
            if tool in rule.tools and operator in operators(rule.require)
        )
        return next(rules, None)

    def asks_consent(self, tool: str) -> bool:
        """Whether a rule makes the agent ask the user before it calls a tool."""
        return self.governing(tool, "confirmed") is not None

    def broken(self, tool: str, arguments: Row, tables: Tables | None = None) -> list[PolicyRule]:
        """The rules about rows, without an enforcing tool, that a call would break."""
        scope = scope_of(self.world, tables, arguments=arguments)
        return [
            rule
            for rule in self.policy_rules
            if tool in rule.tools and not operators(rule.require) & CONVERSATION
            and applies(rule.when, scope) and not holds(rule.require, scope)
        ]  # fmt: skip

    def scope(self, arguments: Row, tables: Tables | None = None) -> Scope:
        return scope_of(self.world, tables, arguments=arguments)

    def answerable(self, table: str) -> list[WorldColumn]:
        """Columns whose cells a user may ask for: no keys, no texts that name somebody."""
        kinds = (ColumnType.DATE, ColumnType.INTEGER, ColumnType.NUMBER, ColumnType.ENUM)
        return [column for column in self.tables[table].columns if column.type in kinds]


def applies(when: Expr, scope: Scope) -> bool:
    """Whether a rule applies to a call."""
    return when is None or holds(when, scope)
