"""What is wrong with one part of a world that a teacher wrote, before all parts are there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, cast

from astra.arena.effects import EffectError, effects
from astra.arena.expressions import ExpressionError, evaluate, holds, scope_of
from astra.records.state import Row, Tables, WriteAction
from astra.records.world import (
    ColumnType,
    PolicyRule,
    ToolRole,
    World,
    WorldShape,
    WorldTool,
)
from astra.text.schemas import schema_fault
from astra.worlds.assembly import HOST_TOOL_NAMES, sample_arguments, sample_rows
from astra.worlds.declarations import idle_faults, outline_faults
from astra.worlds.parties import party_faults
from astra.worlds.soundness import (
    WorldFault,
    operations,
    reach_faults,
    row_faults,
    rules_faults,
    shape_faults,
    table_faults,
    tool_faults,
    tools_faults,
)

_KEY = re.compile(r"[a-z][a-z0-9_]*_id")
_READING = (ToolRole.FIND, ToolRole.GET, ToolRole.LIST, ToolRole.SEARCH, ToolRole.QUOTE)
_TOLD = {
    "called": lambda part: (part[0], ""),
    "seen": lambda part: (part[0], part[1]),
    "distinct_seen": lambda part: (part[0], part[1]),
}
"""What operators about the conversation name: a tool, and a column that it shows."""


def schema_faults(world: World) -> Iterator[WorldFault]:
    """Faults of tables, outlines and invariants. The tools of ``world`` may have no bodies yet."""
    found = list(_schema_faults(world))
    yield from found or outline_faults(world)


def _schema_faults(world: World) -> Iterator[WorldFault]:
    yield from _of(shape_faults(world), "tables", "tools")
    yield from table_faults(world)
    keys = Counter(table.key for table in world.tables)
    for table in world.tables:
        types = {column.name: column.type for column in table.columns}
        if not _KEY.fullmatch(table.key) or keys[table.key] > 1:
            found = f"{table.name}: {table.key!r}"
            yield WorldFault("bad_key", f"{found} is no key of its own that ends in _id")
        elif types.get(table.key) is not ColumnType.ID:
            yield WorldFault("bad_key", f"{table.name}.{table.key} has to be of type id")
        for column in table.columns:
            if column.type is ColumnType.ENUM and len(set(column.values)) < 2:
                yield WorldFault("bad_columns", f"{table.name}.{column.name}: too few values")
    yield from _outlines(world)
    yield from _invariants(world)


def _of(faults: Iterator[WorldFault], *sizes: str) -> Iterator[WorldFault]:
    wanted = {f"{size}_out_of_bounds" for size in sizes}
    return (fault for fault in faults if fault.reason in wanted)


def _outlines(world: World) -> Iterator[WorldFault]:
    yield from tools_faults(world)
    yield from reach_faults(world)
    for tool in world.tools:
        if tool.tool.name in HOST_TOOL_NAMES:
            continue
        if tool.role in (ToolRole.DECLINE, ToolRole.HAND_OVER):
            yield WorldFault("roles", f"{tool.tool.name}: that role is the host's")
        if bool(tool.writes) == (tool.role in _READING):
            yield WorldFault(
                "roles", f"{tool.tool.name} is of role {tool.role} and writes {[*tool.writes]}"
            )
        if tool.role in _READING and tool.role is not ToolRole.QUOTE and not tool.shows:
            yield WorldFault("unknown_column", f"{tool.tool.name} shows no column of any table")
        if tool.role is ToolRole.FIND and len(tool.shows) != 1:
            yield WorldFault("roles", f"{tool.tool.name} has to show the parties' table alone")
        if why := _parameters_fault(tool.tool.parameters):
            yield WorldFault("bad_document", f"{tool.tool.name}: {why}")


def _parameters_fault(schema: Mapping[str, Any]) -> str:
    """What keeps a document's parameters from being drawn for calls; empty if nothing does."""
    if why := schema_fault(schema):
        return f"parameters are no JSON Schema: {why}"
    properties = cast("dict[str, Any]", schema.get("properties", {}))
    if strange := sorted(set(schema.get("required", ())) - set(properties)):
        return f"required parameters {strange} are not among the properties"
    kinds = ("string", "integer", "number", "boolean")
    for name, one in properties.items():
        if not name.isidentifier() or not isinstance(one, dict) or one.get("type") not in kinds:
            return f"parameter {name!r} has to be an identifier, of type {', '.join(kinds)}"
    return ""


def _invariants(world: World) -> Iterator[WorldFault]:
    """Invariants of tables that are not there, and expressions that nothing can evaluate."""
    rows = sample_rows(world.tables, world.clock)
    for invariant in world.invariants:
        if not rows.get(invariant.table):
            yield WorldFault("unknown_table", f"{invariant.text}: no table {invariant.table!r}")
            continue
        try:
            holds(invariant.holds, scope_of(world, rows, row=rows[invariant.table][0]))
        except ExpressionError as error:
            yield WorldFault("bad_expression", f"invariant {invariant.text!r}: {error}")


def rule_faults(world: World) -> Iterator[WorldFault]:
    """Faults of the rules and of the policy. The tools of ``world`` may have no bodies yet."""
    yield from _of(shape_faults(world), "rules", "policy_rules", "words")
    yield from rules_faults(world)
    tools = {tool.tool.name: tool for tool in world.tools}
    rows = sample_rows(world.tables, world.clock)
    for rule in world.rules:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", rule.reason) or not rule.text.strip():
            yield WorldFault("unnamed_reason", f"rule {rule.id}: a code and a sentence are needed")
        if set(rule.tools) & set(HOST_TOOL_NAMES):
            yield WorldFault("unknown_tool", f"rule {rule.id}: nothing governs how a request ends")
        known = [tools[name] for name in rule.tools if name in tools]
        yield from _names(rule, known, tools)
        for tool in known:
            yield from _tried(world, rule, tool, rows)


def _names(
    rule: PolicyRule, governed: list[WorldTool], tools: Mapping[str, WorldTool]
) -> Iterator[WorldFault]:
    """Arguments that no governed tool takes, and columns that a tool does not show."""
    for operator, operand in (*operations(rule.when), *operations(rule.require)):
        if operator == "arg":
            # What a tool of another name would take is told with the name alone.
            if len(governed) == len(rule.tools) and all(
                operand not in tool.tool.parameters.get("properties", {}) for tool in governed
            ):
                found = f"{[*rule.tools]} take no argument {operand!r}"
                yield WorldFault("unknown_argument", f"rule {rule.id}: {found}")
        elif operator in _TOLD and isinstance(operand, list) and len(operand) > 1:
            name, column = _TOLD[operator](operand)
            if name not in tools:
                yield WorldFault("unknown_tool", f"rule {rule.id}: there is no tool {name!r}")
            elif column and all(column not in shown for shown in tools[name].shows.values()):
                yield WorldFault("unknown_column", f"rule {rule.id}: {name} shows no {column!r}")


def _tried(world: World, rule: PolicyRule, tool: WorldTool, rows: Tables) -> Iterator[WorldFault]:
    """A rule judged once, on rows and arguments made up."""
    scope = scope_of(world, rows, arguments=sample_arguments(tool, world.tables, world.clock))
    try:
        for condition in (rule.when, rule.require):
            if condition is not None:
                holds(condition, scope)
    except ExpressionError as error:
        yield WorldFault("bad_expression", f"rule {rule.id}: {error}")


def body_faults(world: World, tool: WorldTool) -> Iterator[WorldFault]:
    """Faults of one tool's code and changes."""
    yield from tool_faults(world, tool)
    name, tables = tool.tool.name, {table.name: table for table in world.tables}
    if not tool.changes and tool.writes:
        yield WorldFault("other_effect", f"{name} writes {[*tool.writes]} and states no changes")
    for change in tool.changes:
        table = tables.get(change.table)
        if table is None:
            yield WorldFault("unknown_table", f"{name}: no table {change.table!r}")
            return
        columns = {column.name for column in table.columns}
        if strange := sorted(set(change.values) - columns | {table.key} & set(change.values)):
            yield WorldFault("unknown_column", f"{name}: {strange} of {table.name} cannot be set")
        if change.action is WriteAction.INSERT:
            if lacking := sorted(columns - {table.key} - set(change.values)):
                yield WorldFault("other_effect", f"{name}: a new row of {table.name}: {lacking}?")
            if not change.binds:
                yield WorldFault("other_effect", f"{name}: `binds` names the new row's key")
        elif change.key is None:
            yield WorldFault("other_effect", f"{name}: which row of {table.name} is changed?")
    rows = sample_rows(world.tables, world.clock)
    scope = scope_of(world, rows, arguments=sample_arguments(tool, world.tables, world.clock))
    try:
        effects(world, tool, scope)
        for change in tool.changes:
            evaluate(change.when, scope)
    except (EffectError, ExpressionError) as error:
        yield WorldFault("bad_expression", f"{name}: {error}")
    except (KeyError, TypeError, ValueError) as error:
        yield WorldFault("bad_expression", f"{name}: a change that is none: {error!r}")
    yield from idle_faults(world, tool)


def rows_faults(world: World, made: Any) -> Iterator[WorldFault]:
    """Faults of what the program for rows returned; ``world`` holds these rows if they are any."""
    names = {table.name for table in world.tables}
    if why := _no_rows(made, names):
        yield WorldFault("bad_rows", why)
        return
    yield from row_faults(world, world.rows)
    yield from _of(shape_faults(world), "rows")
    yield from party_faults(world, world.rows)
    if world.shape is WorldShape.FULL and not _namesakes(world):
        yield WorldFault("no_distractors", "no two parties share a word of their names")


def _no_rows(made: Any, names: set[str]) -> str:
    if not isinstance(made, dict):
        return f"make_rows returned {type(made).__name__}, not an object of tables"
    if strange := sorted(set(cast("Row", made)) - names):
        return f"there are no tables {strange}"
    for name, rows in cast("Row", made).items():
        listed = cast("list[Any]", rows) if isinstance(rows, list) else [None]
        if not all(isinstance(row, dict) for row in listed):
            return f"{name} is no list of objects"
    return ""


def _namesakes(world: World) -> bool:
    """Whether a word stands in the same text column of two parties' rows: a name is no key."""
    find = next(tool for tool in world.tools if tool.role is ToolRole.FIND)
    (party,) = find.shows
    table = next(table for table in world.tables if table.name == party)
    for column in table.columns:
        if column.type is ColumnType.STRING:
            words = Counter(
                word for row in world.rows[party] for word in set(str(row[column.name]).split())
            )
            if any(number > 1 for word, number in words.items() if word.isalpha()):
                return True
    return False
