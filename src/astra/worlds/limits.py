"""Calls on both sides of a rule's limits.

One value of a call or of a row is varied until the rule's expression decides otherwise, and the
last value before is kept with the first one after.

A sentence that draws a line elsewhere than its expression is read otherwise at one of the two.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

from astra.arena.expressions import ExpressionError, evaluate, holds, scope_of
from astra.records.state import Row, Tables
from astra.records.world import (
    ColumnType,
    Expr,
    PolicyRule,
    TraceEvent,
    World,
    WorldColumn,
    WorldTool,
)
from astra.worlds.soundness import operations

_FARTHEST = 400
"""Steps from where a value stands that are tried: more than a year of days."""
_MOST_CLONES = 12
"""Rows that are added to those that a rule counts, at most."""
Axis = tuple[str, ...]
"""What is varied, and last which way."""
ORDERED_WAYS = ("up", "down", "more", "fewer")
_BACK = {"up": "down", "down": "up", "more": "fewer", "fewer": "more"}


@dataclass(frozen=True)
class TriedCall:
    """A call on rows that may be otherwise than the world's, after some events."""

    tool: str
    arguments: Row
    events: tuple[TraceEvent, ...]
    tables: Tables


def allowed(world: World, rule: PolicyRule, call: TriedCall) -> tuple[bool, bool]:
    """Whether a rule applies to a call, and whether it allows it. Raises ExpressionError."""
    scope = scope_of(world, call.tables, arguments=call.arguments, events=call.events)
    applies = rule.when is None or holds(rule.when, scope)
    return applies, not applies or holds(rule.require, scope)


def limit_pairs(
    world: World, rule: PolicyRule, tool: WorldTool, call: TriedCall, known: Container[Axis]
) -> Iterator[tuple[Axis, TriedCall, TriedCall]]:
    """Yields each limit: its name, the last call that the rule allows, and the one after it.

    A limit is a value that the rule looks at and a way to vary it. Those ``known`` are left
    out, as are values that never change the decision.
    """
    try:
        first = allowed(world, rule, call)[1]
    except ExpressionError:
        return
    for (*place, way), tried in _varied(world, rule, tool, call):
        # A limit is named by the way out of what is allowed, from wherever it is reached.
        limit = (*place, way if first else _BACK.get(way, way))
        last = call
        try:
            for other in tried if limit not in known else ():
                if allowed(world, rule, other)[1] != first:
                    yield limit, *((last, other) if first else (other, last))
                    break
                last = other
        except (ExpressionError, OverflowError):
            continue  # past what can be computed there is no limit


def _varied(
    world: World, rule: PolicyRule, tool: WorldTool, call: TriedCall
) -> Iterator[tuple[Axis, Iterator[TriedCall]]]:
    tables = {table.name: table for table in world.tables}
    scope = scope_of(world, call.tables, arguments=call.arguments, events=call.events)
    done: set[Axis] = set()
    for operator, operand in (*operations(rule.when), *operations(rule.require)):
        if operator == "arg" and call.arguments.get(operand) is not None:
            schema = tool.tool.parameters["properties"].get(operand, {})
            found = [
                ((operand, way), _arguments(call, operand, values))
                for way, values in _steps(_kind(schema), call.arguments[operand], schema)
            ]
        elif operator == "field" and isinstance(operand[0], dict) and "row" in operand[0]:
            table = tables[operand[0]["row"][0]]
            row = _tried(operand[0], scope)
            column = next((one for one in table.columns if one.name == operand[1]), None)
            found = [] if row is None or column is None else [
                ((table.name, column.name, way), _cells(call, table.name, row, column.name, values))
                for way, values in _steps(column.type, row[column.name], _schema(column))
            ]  # fmt: skip
        elif operator in ("count", "exists", "sum"):
            table = operand[0]
            where = {name: _tried(part, scope) for name, part in operand[-1].items()}
            found = [
                ((table, "fewer"), _fewer(call, table, where)),
                ((table, "more"), _more(call, table, tables[table].key, where)),
            ]
        else:
            continue
        for axis, tried in found:
            if axis not in done:
                done.add(axis)
                yield axis, tried


def _tried(expr: Expr, scope: Any) -> Any:
    try:
        return evaluate(expr, scope)
    except ExpressionError:
        return None


def _kind(schema: Mapping[str, Any]) -> ColumnType | None:
    if "enum" in schema:
        return ColumnType.ENUM
    if schema.get("format") == "date":
        return ColumnType.DATE
    kinds = {"integer": ColumnType.INTEGER, "number": ColumnType.NUMBER,
             "boolean": ColumnType.BOOLEAN}  # fmt: skip
    return kinds.get(schema.get("type", ""))


def _schema(column: WorldColumn) -> Row:
    return {"enum": list(column.values)}


def _steps(
    kind: ColumnType | None, value: Any, schema: Mapping[str, Any]
) -> Iterator[tuple[str, list[Any]]]:
    """The values to try one after the other, up and down, or all others of a closed set."""
    if value is None:
        return
    far = range(1, _FARTHEST + 1)
    match kind:
        case ColumnType.INTEGER | ColumnType.NUMBER:
            least, most = schema.get("minimum", 0), schema.get("maximum", value + _FARTHEST)
            yield "up", [value + at for at in far if value + at <= most]
            yield "down", [value - at for at in far if value - at >= least]
        case ColumnType.DATE:
            try:
                day = date.fromisoformat(value[:10])
            except ValueError:
                return  # a day that is none has none beside it
            yield "up", [(day + timedelta(days=at)).isoformat() for at in far]
            yield "down", [(day - timedelta(days=at)).isoformat() for at in far]
        case ColumnType.ENUM:
            for other in schema["enum"]:
                yield str(other), [other] if other != value else []
        case ColumnType.BOOLEAN:
            yield str(not value), [not value]
        case _:
            return


def _arguments(call: TriedCall, name: str, values: list[Any]) -> Iterator[TriedCall]:
    for value in values:
        yield replace(call, arguments=call.arguments | {name: value})


def _cells(
    call: TriedCall, table: str, row: Row, column: str, values: list[Any]
) -> Iterator[TriedCall]:
    for value in values:
        rows = [one | {column: value} if one is row else one for one in call.tables[table]]
        yield replace(call, tables={**call.tables, table: rows})


def _fewer(call: TriedCall, table: str, where: Row) -> Iterator[TriedCall]:
    """One of the rows that are counted taken away after the other."""
    rows = list(call.tables[table])
    for row in [one for one in rows if _matches(one, where)]:
        rows = [one for one in rows if one is not row]
        yield replace(call, tables={**call.tables, table: rows})


def _more(call: TriedCall, table: str, key: str, where: Row) -> Iterator[TriedCall]:
    """One row more after the other that is counted, each a copy but for its key."""
    rows = list(call.tables[table])
    if not rows or key in where:
        return
    model = next((one for one in rows if _matches(one, where)), rows[0]) | where
    for at in range(1, _MOST_CLONES + 1):
        rows = [*rows, model | {key: f"{model[key]}-{at}"}]
        yield replace(call, tables={**call.tables, table: rows})


def _matches(row: Row, where: Row) -> bool:
    return all(row[name] == value for name, value in where.items())
