"""What can be said of a world without running its tools: shape, rows, declarations, words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, cast

from astra.arena.expressions import ExpressionError, evaluate, holds, scope_of
from astra.records.state import Tables
from astra.records.world import (
    OUTCOMES,
    ColumnType,
    Enforced,
    Expr,
    PolicyRule,
    ToolRole,
    World,
    WorldColumn,
    WorldShape,
    WorldTable,
    WorldTool,
)
from astra.text.keys import key_of
from astra.text.source import parsed
from astra.worlds.sentences import RuleWording


@dataclass(frozen=True)
class WorldFault:
    """Why a world is rejected: a code that is counted, and what was found."""

    reason: str
    detail: str


@dataclass(frozen=True)
class Bounds:
    """How much of a world a shape has; both ends count."""

    tables: tuple[int, int]
    """Not counting ``outcomes``."""
    tools: tuple[int, int]
    rules: tuple[int, int]
    policy_rules: int
    """Rules that no tool enforces, at least."""
    words: tuple[int, int]
    rows: tuple[int, int]


BOUNDS = {
    WorldShape.FULL: Bounds((5, 8), (12, 20), (6, 12), 4, (250, 700), (150, 600)),
    WorldShape.SMALL: Bounds((3, 3), (1, 6), (1, 3), 1, (1, 80), (10, 80)),
    WorldShape.SERVICE: Bounds((2, 20), (4, 60), (1, 30), 0, (1, 1_500), (10, 5_000)),
}
"""Sizes of worlds: full ones are desks with a rulebook, small ones fit a small policy, those of
services are as they come."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
TRACE_OPERATORS = frozenset({"called", "seen", "distinct_seen", "confirmed"})
"""Operators that ask about the conversation, which no tool can tell."""


def soundness_faults(world: World) -> Iterator[WorldFault]:
    """Everything that is wrong with a world as it stands; later parts rely on earlier ones."""
    for part in (shape_faults, table_faults, tools_faults, rules_faults, _texts):
        found = list(part(world))
        yield from found
        if found:
            return
    yield from row_faults(world, world.rows)


def shape_faults(world: World) -> Iterator[WorldFault]:
    """Sizes outside of what the shape allows."""
    bounds = BOUNDS[world.shape]
    policy = sum(rule.enforced is Enforced.POLICY for rule in world.rules)
    for what, number, (least, most) in (
        ("tables", len([t for t in world.tables if t.name != OUTCOMES]), bounds.tables),
        ("tools", len(world.tools), bounds.tools),
        ("rules", len(world.rules), bounds.rules),
        ("policy_rules", policy, (bounds.policy_rules, bounds.rules[1])),
        ("words", len(world.policy.split()), bounds.words),
        ("rows", sum(map(len, world.rows.values())), bounds.rows),
    ):
        if not least <= number <= most:
            yield WorldFault(
                f"{what}_out_of_bounds",
                f"{number} {what}, a {world.shape} world has {least} to {most}",
            )


def table_faults(world: World) -> Iterator[WorldFault]:
    """Tables and columns that cannot be."""
    names = [table.name for table in world.tables]
    if len(set(names)) != len(names):
        yield WorldFault("duplicate_table", f"tables {sorted(names)}")
    if OUTCOMES not in names or world.rows.get(OUTCOMES):
        yield WorldFault("no_outcomes", f"table {OUTCOMES} has to be there, and empty")
    if set(world.rows) != set(names):
        yield WorldFault("other_tables", f"rows of {sorted(world.rows)}, tables {sorted(names)}")
    for table in world.tables:
        columns = [column.name for column in table.columns]
        if table.key not in columns or len(set(columns)) != len(columns):
            yield WorldFault("bad_columns", f"{table.name}: key {table.key}, columns {columns}")
        for column in table.columns:
            if column.references and column.references not in names:
                yield WorldFault("unknown_table", f"{table.name}.{column.name} refers to nothing")


def row_faults(world: World, rows: Tables) -> Iterator[WorldFault]:
    """Cells that do not fit their columns, keys that are no keys, and invariants that fail."""
    keys = {table.name: {row.get(table.key) for row in rows[table.name]} for table in world.tables}
    for table in world.tables:
        if len(keys[table.name]) != len(rows[table.name]):
            yield WorldFault("duplicate_key", f"two rows of {table.name} share a key")
        for row in rows[table.name]:
            yield from _cells(table, row, keys)
    scope = scope_of(world, rows)
    for invariant in world.invariants:
        for row in rows.get(invariant.table, ()):
            try:
                kept = holds(invariant.holds, scope_of(world, rows, row=row, by_key=scope.by_key))
            except ExpressionError as error:
                yield WorldFault("bad_expression", f"{invariant.text}: {error}")
                break
            if not kept:
                yield WorldFault("invariant_broken", f"{invariant.table}: {invariant.text}: {row}")
                break


def _cells(
    table: WorldTable, row: Mapping[str, Any], keys: Mapping[str, Any]
) -> Iterator[WorldFault]:
    columns = {column.name: column for column in table.columns}
    if set(columns) != set(row):
        yield WorldFault("bad_row", f"{table.name}: columns {sorted(set(columns) ^ set(row))}")
        return
    for name, cell in row.items():
        column = columns[name]
        if not _fits(column, cell):
            yield WorldFault("bad_cell", f"{table.name}.{name} ({column.type}): {cell!r}")
        elif column.references and cell is not None and cell not in keys[column.references]:
            yield WorldFault("dangling_reference", f"{table.name}.{name} = {cell!r}")


def _fits(column: WorldColumn, cell: Any) -> bool:
    if cell is None:
        return (column.optional and column.type is not ColumnType.ID) or bool(
            column.optional and column.references
        )
    whole = isinstance(cell, int) and not isinstance(cell, bool)
    match column.type:
        case ColumnType.ID | ColumnType.STRING:
            return isinstance(cell, str)
        case ColumnType.ENUM:
            return cell in column.values
        case ColumnType.INTEGER:
            return whole
        case ColumnType.NUMBER:
            return whole or isinstance(cell, float)
        case ColumnType.BOOLEAN:
            return isinstance(cell, bool)
        case ColumnType.DATE:
            return isinstance(cell, str) and _is_date(cell)
        case ColumnType.JSON:
            return isinstance(cell, list | dict)


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text[:10]).isoformat() == text[:10]
    except ValueError:
        return False


def tools_faults(world: World) -> Iterator[WorldFault]:
    """Names and roles of the tools, and what is wrong with each."""
    names = [tool.tool.name for tool in world.tools]
    if len(set(names)) != len(names):
        yield WorldFault("duplicate_tool", f"tools {sorted(names)}")
    for role in (ToolRole.DECLINE, ToolRole.HAND_OVER, ToolRole.FIND):
        if sum(tool.role is role for tool in world.tools) != 1:
            yield WorldFault("roles", f"one tool has to be of role {role}")
    for tool in world.tools:
        yield from tool_faults(world, tool)


def tool_faults(world: World, tool: WorldTool) -> Iterator[WorldFault]:
    """A tool whose declarations do not fit the world, its code or its document."""
    name, tables = tool.tool.name, {table.name: table for table in world.tables}
    declared = {*tool.reads, *tool.writes, *tool.shows}
    if not _NAME.fullmatch(name) or not tool.tool.description.strip():
        yield WorldFault(
            "bad_document", f"{name!r}: a name in letters and a description are needed"
        )
    if strange := sorted(declared - set(tables)):
        yield WorldFault("unknown_table", f"{name} declares {strange}")
        return
    for table, columns in tool.shows.items():
        if missing := set(columns) - {column.name for column in tables[table].columns}:
            yield WorldFault("unknown_column", f"{name} shows {sorted(missing)} of {table}")
    if {change.table for change in tool.changes} - set(tool.writes):
        yield WorldFault("undeclared_write", f"{name} has changes of tables that it does not write")
    try:
        tree = parsed(tool.code)
    except (SyntaxError, ValueError) as error:
        yield WorldFault("syntax_error", f"{name}: {error}")
        return
    parameters = _parameters(tree, name)
    properties = [*tool.tool.parameters.get("properties", {})]
    if parameters is None or sorted(parameters[1:]) != sorted(properties):
        yield WorldFault(
            "signature_mismatch", f"{name}: code has {parameters}, document {properties}"
        )


def _parameters(tree: ast.Module, name: str) -> list[str] | None:
    """The parameters of the module's function of that name."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]
    return None


def rules_faults(world: World) -> Iterator[WorldFault]:
    """Rules about tools, codes or tables that are not there, or that nobody can enforce."""
    tools = {tool.tool.name: tool for tool in world.tools}
    ids = [rule.id for rule in world.rules]
    codes = {code for tool in world.tools if tool.role is ToolRole.DECLINE
             for code in _codes(tool)}  # fmt: skip
    if len(set(ids)) != len(ids):
        yield WorldFault("duplicate_rule", f"rules {sorted(ids)}")
    reasons = [rule.reason for rule in world.rules]
    if len(set(reasons)) != len(reasons):
        yield WorldFault("shared_reason", f"codes {sorted(reasons)}")
    for rule in world.rules:
        if strange := sorted(set(rule.tools) - set(tools)):
            yield WorldFault("unknown_tool", f"rule {rule.id} governs {strange}")
            continue
        if not rule.tools:
            yield WorldFault("unknown_tool", f"rule {rule.id} governs no tool")
        if rule.reason not in codes:
            yield WorldFault("unnamed_reason", f"{rule.reason} is no code for declining")
        asks = operators(rule.when) | operators(rule.require)
        if rule.enforced is Enforced.TOOL and asks & TRACE_OPERATORS:
            yield WorldFault(
                "unenforceable",
                f"rule {rule.id}: no tool can tell {sorted(asks & TRACE_OPERATORS)}",
            )
        try:
            for condition in (rule.when, rule.require):
                evaluate(condition, scope_of(world))
        except ExpressionError as error:
            yield WorldFault("bad_expression", f"rule {rule.id}: {error}")
        yield from _unseen(world, rule)


def _unseen(world: World, rule: PolicyRule) -> Iterator[WorldFault]:
    """Cells that a rule rests on and no reading tool shows or filters by: an agent who may not
    guess cannot tell whether the rule allows a call."""
    seen = {
        (table, name)
        for tool in world.tools if not tool.writes
        for table, columns in tool.shows.items()
        for name in (*columns, *tool.tool.parameters.get("properties", {}))
    }  # fmt: skip
    there = {(table.name, column.name) for table in world.tables for column in table.columns}
    cells = {*cells_in(rule.when), *cells_in(rule.require)}
    if hidden := sorted((cells & there) - seen):
        told = ", ".join(f"{table}.{column}" for table, column in hidden)
        yield WorldFault("unseen_fact", f"rule {rule.id} rests on {told}, which no tool shows")


def reach_faults(world: World) -> Iterator[WorldFault]:
    """Tools that need a key which no other tool shows, starting from nothing."""
    keys = {table.key for table in world.tables if table.name != OUTCOMES}
    shown: set[str] = set()
    waiting = {tool.tool.name: _needed(tool, keys) for tool in world.tools}
    shows = {tool.tool.name: tool.shows for tool in world.tools}
    while ready := [name for name, needed in waiting.items() if needed <= shown]:
        for name in ready:
            del waiting[name]
            shown.update(column for columns in shows[name].values() for column in columns)
    for name, needed in waiting.items():
        yield WorldFault("unreachable_tool", f"{name} needs {sorted(needed - shown)}")


def _needed(tool: WorldTool, keys: set[str]) -> set[str]:
    """The key columns that a tool's required parameters are of."""
    required = tool.tool.parameters.get("required", ())
    return {key for name in required if (key := key_of(name, keys))}


def _codes(tool: WorldTool) -> tuple[str, ...]:
    schema = tool.tool.parameters.get("properties", {}).get("reason", {})
    return tuple(schema.get("enum", ()))


def operators(expr: Expr) -> set[str]:
    """The operators in an expression."""
    if isinstance(expr, dict):
        return set(expr).union(*map(operators, expr.values()))
    if isinstance(expr, list | tuple):
        return set[str]().union(*map(operators, expr))
    return set()


def operations(expr: Expr) -> Iterator[tuple[str, Any]]:
    """Every operator of a tree with its operand."""
    if isinstance(expr, dict):
        for name, operand in cast("dict[str, Any]", expr).items():
            yield name, operand
            yield from operations(operand)
    elif isinstance(expr, list | tuple):
        for part in cast("list[Any]", expr):
            yield from operations(part)


def cells_in(expr: Expr) -> Iterator[tuple[str, str]]:
    """The columns, with their tables, whose cells decide an expression about rows. What it asks
    about the conversation is left out."""
    if isinstance(expr, list | tuple):
        for part in cast("list[Any]", expr):
            yield from cells_in(part)
    elif isinstance(expr, dict):
        for name, operand in cast("dict[str, Any]", expr).items():
            match name, operand:
                case "field", [{"row": [table, _]}, column]:
                    yield table, column
                case "count" | "exists", [table, where]:
                    yield from ((table, column) for column in where)
                case "sum", [table, column, where]:
                    yield from ((table, one) for one in (column, *where))
                case _:
                    pass
            if name not in TRACE_OPERATORS:
                yield from cells_in(operand)


def _texts(world: World) -> Iterator[WorldFault]:
    """Sentences stand in the policy; those made by rule say what their expressions say."""
    nouns = {table.name: table.key.removesuffix("_id").replace("_", " ") for table in world.tables}
    wording = RuleWording(world.tables, nouns)
    for rule in world.rules:
        if rule.text not in world.policy:
            yield WorldFault("untold_rule", f"the policy does not have the sentence of {rule.id}")
        if world.prompt_hash:
            continue  # a teacher's words: cases decide whether they agree
        said = wording.sentence(rule.tools, rule.when, rule.require, rule.reason)
        if said != rule.text:
            yield WorldFault(
                "other_sentence", f"rule {rule.id}: {rule.text!r}, its tree says {said!r}"
            )
    for code in world.topics:
        hand_over = next(tool for tool in world.tools if tool.role is ToolRole.HAND_OVER)
        if code not in _codes(hand_over):
            yield WorldFault("unnamed_topic", f"{code} is no code for handing over")
