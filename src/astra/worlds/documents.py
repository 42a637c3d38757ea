"""A tool's document, and what the tool reads, writes and shows, from its specification."""

from __future__ import annotations

from astra.records.tool import Tool
from astra.records.world import WorldTable, WorldTool
from astra.worlds.sources import Source, tables_in
from astra.worlds.specs import ListResult, RecordResult, RowResult, ToolSpec


def world_tool(spec: ToolSpec, tables: tuple[WorldTable, ...]) -> WorldTool:
    """The tool of a world: document, code and declarations."""
    writes = {change.table for change in spec.changes}
    return WorldTool(
        tool=Tool(
            name=spec.name,
            description=spec.description,
            parameters={
                "type": "object",
                "properties": {p.name: p.schema for p in spec.parameters},
                "required": [p.name for p in spec.parameters if not p.optional],
                "additionalProperties": False,
            },
            effect="writes" if writes else "reads",
        ),
        code=Source(tables).tool(spec),
        role=spec.role,
        reads=tuple(sorted(_reads(spec))),
        writes=tuple(sorted(writes)),
        shows=shown_by(spec),
        changes=spec.changes,
    )


def _reads(spec: ToolSpec) -> set[str]:
    tables = {parameter.table for parameter in spec.parameters if parameter.table}
    tables |= tables_in([check.require for check in spec.checks])
    for change in spec.changes:
        tables |= {change.table}
        tables |= tables_in(
            [change.key, change.when, list(change.parts), [*change.values.values()]]
        )
    match spec.result:
        case RowResult(table, key):
            return tables | {table} | tables_in(key)
        case ListResult(table):
            return tables | {table}
        case RecordResult(values):
            return tables | tables_in([*values.values()])


def shown_by(spec: ToolSpec) -> dict[str, tuple[str, ...]]:
    """The columns that a tool's results hold, by their tables."""
    match spec.result:
        case RowResult(table, _, columns) | ListResult(table, _, columns):
            return {table: columns}
        case RecordResult():
            return {}
