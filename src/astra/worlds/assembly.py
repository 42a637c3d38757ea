"""A world put together from a teacher's replies, and what the host adds to every such world."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from astra.records.state import Row, Tables
from astra.records.tool import Tool
from astra.records.world import (
    OUTCOMES,
    Change,
    ColumnType,
    Invariant,
    PolicyRule,
    World,
    WorldColumn,
    WorldShape,
    WorldTable,
    WorldTool,
)
from astra.text.keys import key_of
from astra.worlds.asks import RulesReply, SchemaReply, TaughtRule, ToolBody, ToolOutline
from astra.worlds.documents import world_tool
from astra.worlds.layout import outcomes_table
from astra.worlds.operations.accounts import decline, hand_over
from astra.worlds.policy import REFUSALS, desk_policy
from astra.worlds.subjects import WorldSubject

HOST_TOOL_NAMES = ("decline_request", "hand_over")


def world_of(
    subject: WorldSubject,
    schema: SchemaReply,
    rules: RulesReply,
    bodies: Mapping[str, ToolBody],
    rows: Mapping[str, list[Row]],
    shape: WorldShape,
    clock: str,
    prompt_hash: str,
) -> World:
    """The world of these replies; a tool without a body does nothing yet. ValueError for a
    document that is none."""
    tables = tables_of(schema)
    stated = tuple(rule_of(rule) for rule in rules.rules)
    reasons = tuple(dict.fromkeys([*(rule.reason for rule in stated), *REFUSALS]))
    last = [decline(HOST_TOOL_NAMES[0], reasons), hand_over(HOST_TOOL_NAMES[1], (*schema.topics,))]
    written = [tool_of(outline, bodies.get(outline.name)) for outline in schema.tools]
    kept: Tables = {table.name: list(rows.get(table.name, [])) for table in tables}
    return World(
        domain=subject.name,
        title=schema.title,
        split=subject.split,
        variant=0,
        shape=shape,
        language="en",
        clock=clock,
        tables=tables,
        rows=kept,
        tools=(*written, *(world_tool(spec, tables) for spec in last)),
        rules=stated,
        invariants=tuple(Invariant(**dict(one)) for one in schema.invariants),
        policy=desk_policy(
            schema.title,
            rules.about,
            [f"{rule.text} (`{rule.reason}`)" for rule in stated],
            schema.topics,
            shape,
            clock,
        ),
        topics=schema.topics,
        refusals=REFUSALS,
        checks={},
        prompt_hash=prompt_hash,
    )


def tables_of(schema: SchemaReply) -> tuple[WorldTable, ...]:
    """The tables of a schema, with ``outcomes``."""
    written = [
        WorldTable(
            name=table.name,
            key=table.key,
            columns=tuple(
                WorldColumn.model_validate({**dict(column), "values": tuple(column.values)})
                for column in table.columns
            ),
        )
        for table in schema.tables
    ]
    return (*written, outcomes_table())


def rule_of(rule: TaughtRule) -> PolicyRule:
    """A rule of the policy."""
    return PolicyRule.model_validate({**dict(rule), "tools": tuple(rule.tools)})


def tool_of(outline: ToolOutline, body: ToolBody | None) -> WorldTool:
    """A tool of a world. ValueError for a document that is none."""
    names = list(outline.parameters.get("properties", {}))
    changes = body.changes if body else ()
    return WorldTool(
        tool=Tool(
            name=outline.name,
            description=outline.description,
            parameters={**outline.parameters, "type": "object", "additionalProperties": False},
            effect="writes" if outline.writes else "reads",
        ),
        code=body.code
        if body
        else f"def {outline.name}({', '.join(['world', *names])}):\n    pass\n",
        role=outline.role,
        reads=tuple(outline.reads),
        writes=tuple(outline.writes),
        shows={table: tuple(columns) for table, columns in outline.shows.items()},
        changes=tuple(
            Change.model_validate({**dict(change), "parts": tuple(change.parts)})
            for change in changes
        ),
    )


def sample_rows(tables: Iterable[WorldTable], clock: str) -> Tables:
    """One row for each table, made up: what expressions are tried on before there are rows."""
    day = clock[:10]
    plain: dict[ColumnType, Any] = {
        ColumnType.STRING: "x", ColumnType.INTEGER: 1, ColumnType.NUMBER: 1.5,
        ColumnType.BOOLEAN: True, ColumnType.DATE: day, ColumnType.JSON: [],
    }  # fmt: skip
    made: Tables = {}
    for table in tables:
        row: Row = {}
        for column in table.columns:
            if column.name == table.key:
                row[column.name] = f"{table.name}-1"
            elif column.references:
                row[column.name] = f"{column.references}-1"
            elif column.type is ColumnType.ENUM:
                row[column.name] = next(iter(column.values), "x")
            else:
                row[column.name] = plain.get(column.type, "x")
        made[table.name] = [] if table.name == OUTCOMES else [row]
    return made


def sample_arguments(tool: WorldTool, tables: Iterable[WorldTable], clock: str) -> Row:
    """Arguments made up for one call on the rows made up."""
    keys = {table.key: table.name for table in tables if table.name != OUTCOMES}
    given: Row = {}
    for name, schema in tool.tool.parameters.get("properties", {}).items():
        table = keys.get(key_of(name, keys))
        match schema:
            case _ if table:
                given[name] = f"{table}-1"
            case {"enum": [first, *_]}:
                given[name] = first
            case {"type": "integer"}:
                given[name] = schema.get("minimum", 1)
            case {"type": "number"}:
                given[name] = 1.5
            case {"type": "boolean"}:
                given[name] = True
            case {"format": "date"}:
                given[name] = clock[:10]
            case _:
                given[name] = "x"
    return given
