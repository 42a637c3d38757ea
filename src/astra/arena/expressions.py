"""Conditions and values over a world as JSON trees, and the one evaluator of them.

A scalar is itself. An object with one key is an operator: ``arg``, ``clock``, ``row``, ``field``,
``self``, ``and``, ``or``, ``not``, ``eq``, ``lt``, ``le``, ``in``, ``add``, ``sub``, ``mul``,
``days_between``, ``date_add``, ``count``, ``exists``, ``sum``, ``called``, ``seen``,
``distinct_seen`` and ``confirmed``. Null stands for what is not there: ``eq`` compares it, ``lt``
and ``le`` are false with it, as a condition it is false, and what is computed from it is null.
Anything else that does not fit raises, so that a wrong tree is never taken for a false condition.
"""

from __future__ import annotations

import operator as op
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, cast

from astra.arena.state import plain, same_cell
from astra.arena.traces import confirmed, records_in, succeeded
from astra.records.base import canonical_json
from astra.records.state import Row, Tables
from astra.records.world import Expr, TraceEvent, World

_DECIMALS = 9
"""Sums and products are rounded to so many places: 0.1 + 0.2 is 0.3 in a ledger."""


class ExpressionError(ValueError):
    """A tree that is none, or that does not fit its scope; the message names the path in it."""


@dataclass(frozen=True)
class Scope:
    """What a tree may refer to. ``keys`` names each table's key column; ``writing`` the tools that
    change tables. Make one anew when tables change: rows by key are looked up once."""

    tables: Tables
    keys: Mapping[str, str]
    clock: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    row: Row | None = None
    """The row of an invariant."""
    events: Sequence[TraceEvent] = ()
    """What happened before."""
    writing: frozenset[str] = frozenset()
    by_key: dict[str, dict[str, Row]] = field(default_factory=dict[str, dict[str, Row]])
    """Rows by key, as far as they were looked up; scopes over the same tables may share it."""


Operator = Callable[[Any, Scope, str], Any]
"""Gives its value for an operand, a scope and the operand's path."""


def scope_of(world: World, tables: Tables | None = None, **more: Any) -> Scope:
    """The scope of a world, over ``tables`` where it is no longer as it was at the start."""
    return Scope(
        tables=all_rows(world) if tables is None else tables,
        keys={table.name: table.key for table in world.tables},
        clock=world.clock,
        writing=frozenset(tool.tool.name for tool in world.tools if tool.writes),
        **more,
    )


def all_rows(world: World) -> Tables:
    """The rows of every table of a world, of those without any too."""
    return {table.name: world.rows.get(table.name, []) for table in world.tables}


def evaluate(expr: Expr, scope: Scope, path: str = "$") -> Any:
    """The value of a tree. Raises ExpressionError."""
    if expr is None or isinstance(expr, str | int | float):
        return expr
    if not isinstance(expr, dict) or len(cast("Row", expr)) != 1:
        raise ExpressionError(f"{path}: neither a scalar nor an object with one operator: {expr!r}")
    ((name, operand),) = cast("Row", expr).items()
    operator = _OPERATORS.get(name)
    if operator is None:
        raise ExpressionError(f"{path}: no operator {name!r}; there are {sorted(_OPERATORS)}")
    return operator(operand, scope, f"{path}.{name}")


def holds(expr: Expr, scope: Scope) -> bool:
    """Whether a condition is true; null is false. Raises ExpressionError for any other value."""
    return _truth(evaluate(expr, scope), "$")


def _fit(what: bool, path: str, wanted: str, found: Any) -> None:
    if not what:
        raise ExpressionError(f"{path}: expected {wanted}, found {found!r}")


def _truth(value: Any, path: str) -> bool:
    _fit(value is None or isinstance(value, bool), path, "a condition", value)
    return bool(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _parts(operand: Any, path: str, count: int | None = None) -> list[Any]:
    wanted = "a list" if count is None else f"a list of {count}"
    _fit(isinstance(operand, list) and count in (None, len(operand)), path, wanted, operand)
    return operand


def _values(operand: Any, scope: Scope, path: str) -> list[Any]:
    pair = _parts(operand, path, 2)
    return [evaluate(part, scope, f"{path}[{at}]") for at, part in enumerate(pair)]


def _rows(scope: Scope, table: Any, path: str) -> list[Row]:
    _fit(isinstance(table, str) and table in scope.tables, path, "a table", table)
    return scope.tables[table]


def _cell(row: Row, column: Any, path: str) -> Any:
    if not isinstance(column, str) or column not in row:  # the message is dear
        _fit(False, path, f"a column of {sorted(row)}", column)
    return row[column]


def _chosen(table: Any, where: Any, scope: Scope, path: str) -> list[Row]:
    _fit(isinstance(where, dict), path, "an object of columns", where)
    wanted = {key: evaluate(part, scope, f"{path}.{key}") for key, part in where.items()}
    return [
        row
        for row in _rows(scope, table, path)
        if all(same_cell(_cell(row, key, path), value) for key, value in wanted.items())
    ]


def _arg(operand: Any, scope: Scope, path: str) -> Any:
    """An argument of the call; null where the call leaves it out."""
    _fit(isinstance(operand, str), path, "the name of an argument", operand)
    return scope.arguments.get(operand)


def _clock(operand: Any, scope: Scope, path: str) -> str:
    _fit(operand in ("date", "datetime"), path, "date or datetime", operand)
    return scope.clock[:10] if operand == "date" else scope.clock


def _row(operand: Any, scope: Scope, path: str) -> Row | None:
    table, key = _parts(operand, path, 2)
    rows = _rows(scope, table, path)
    if table not in scope.by_key:
        scope.by_key[table] = {_cell(row, scope.keys[table], path): row for row in rows}
    wanted = evaluate(key, scope, f"{path}[1]")
    _fit(wanted is None or isinstance(wanted, str), path, "a key", wanted)
    return scope.by_key[table].get(cast("str", wanted))


def _field(operand: Any, scope: Scope, path: str) -> Any:
    tree, column = _parts(operand, path, 2)
    row = evaluate(tree, scope, f"{path}[0]")
    _fit(row is None or isinstance(row, dict), path, "a row", row)
    return None if row is None else _cell(row, column, path)


def _self(operand: Any, scope: Scope, path: str) -> Any:
    _fit(scope.row is not None, path, "a row: `self` is for invariants", None)
    return _cell(cast("Row", scope.row), operand, path)


def _and(operand: Any, scope: Scope, path: str) -> bool:
    return all(
        _condition(part, scope, f"{path}[{at}]") for at, part in enumerate(_parts(operand, path))
    )


def _or(operand: Any, scope: Scope, path: str) -> bool:
    return any(
        _condition(part, scope, f"{path}[{at}]") for at, part in enumerate(_parts(operand, path))
    )


def _condition(expr: Expr, scope: Scope, path: str) -> bool:
    return _truth(evaluate(expr, scope, path), path)


def _eq(operand: Any, scope: Scope, path: str) -> bool:
    return same_cell(*_values(operand, scope, path))


def _ordered(compare: Callable[[Any, Any], bool]) -> Operator:
    def operator(operand: Any, scope: Scope, path: str) -> bool:
        one, other = _values(operand, scope, path)
        if one is None or other is None:
            return False
        alike = (_is_number(one) and _is_number(other)) or (
            isinstance(one, str) and isinstance(other, str)
        )
        _fit(alike, path, "two numbers or two texts", [one, other])
        return compare(one, other)

    return operator


def _in(operand: Any, scope: Scope, path: str) -> bool:
    one, group = _parts(operand, path, 2)
    value = evaluate(one, scope, f"{path}[0]")
    if isinstance(group, list):
        items = cast("list[Any]", group)
        among = [evaluate(item, scope, f"{path}[1][{at}]") for at, item in enumerate(items)]
    else:
        among = evaluate(group, scope, f"{path}[1]")
        _fit(among is None or isinstance(among, list), path, "a list", among)
    return any(same_cell(value, item) for item in among or ())


def _computed(compute: Callable[[Any, Any], float]) -> Operator:
    def operator(operand: Any, scope: Scope, path: str) -> Any:
        one, other = _values(operand, scope, path)
        if one is None or other is None:
            return None
        _fit(_is_number(one) and _is_number(other), path, "two numbers", [one, other])
        return round(compute(one, other), _DECIMALS)

    return operator


def _days_between(operand: Any, scope: Scope, path: str) -> int | None:
    """Days from the first calendar day to the second; times of day make no difference."""
    first, second = _values(operand, scope, path)
    if first is None or second is None:
        return None
    try:
        return (date.fromisoformat(second[:10]) - date.fromisoformat(first[:10])).days
    except (TypeError, ValueError):
        raise ExpressionError(f"{path}: expected two dates, found {[first, second]!r}") from None


def _date_add(operand: Any, scope: Scope, path: str) -> str | None:
    """The date so many whole days after another."""
    first, days = _values(operand, scope, path)
    if first is None or days is None:
        return None
    try:
        if not isinstance(days, int) or isinstance(days, bool):
            raise TypeError(days)
        return (date.fromisoformat(first[:10]) + timedelta(days)).isoformat()
    except (TypeError, ValueError, OverflowError):
        found = [first, days]
        raise ExpressionError(f"{path}: expected a date and days, found {found!r}") from None


def _count(operand: Any, scope: Scope, path: str) -> int:
    table, where = _parts(operand, path, 2)
    return len(_chosen(table, where, scope, path))


def _sum(operand: Any, scope: Scope, path: str) -> float:
    """The sum of a column of the rows chosen; null cells count nothing."""
    table, column, where = _parts(operand, path, 3)
    cells = [_cell(row, column, path) for row in _chosen(table, where, scope, path)]
    there = [cell for cell in cells if cell is not None]
    _fit(all(_is_number(cell) for cell in there), path, "numbers", there)
    return round(sum(there), _DECIMALS)


def _called(operand: Any, scope: Scope, path: str) -> bool:
    tool, where = _parts(operand, path, 2)
    _fit(isinstance(tool, str), path, "the name of a tool", tool)
    _fit(isinstance(where, dict), path, "an object of arguments", where)
    wanted = {key: evaluate(part, scope, f"{path}.{key}") for key, part in where.items()}
    return any(
        all(same_cell(event.arguments.get(key), value) for key, value in wanted.items())
        for event in succeeded(scope.events, tool)
    )


def _seen(operand: Any, scope: Scope, path: str) -> bool:
    tool, column, tree = _parts(operand, path, 3)
    wanted = evaluate(tree, scope, f"{path}[2]")
    return any(same_cell(value, wanted) for value in _shown(scope, tool, column, path))


def _distinct_seen(operand: Any, scope: Scope, path: str) -> int:
    tool, column = _parts(operand, path, 2)
    return len({canonical_json(plain(value)) for value in _shown(scope, tool, column, path)})


def _shown(scope: Scope, tool: Any, column: Any, path: str) -> list[Any]:
    """The values of a column in what a tool has returned so far."""
    _fit(isinstance(tool, str), path, "the name of a tool", tool)
    _fit(isinstance(column, str), path, "the name of a column", column)
    return [
        record[column]
        for event in succeeded(scope.events, tool)
        for record in records_in(event.result)
        if column in record
    ]


def _confirmed(operand: Any, scope: Scope, path: str) -> bool:
    _fit(operand is None, path, "null", operand)
    return confirmed(scope.events, scope.writing)


_OPERATORS: Mapping[str, Operator] = {
    "arg": _arg, "clock": _clock, "row": _row, "field": _field, "self": _self,
    "and": _and, "or": _or, "not": lambda part, scope, path: not _condition(part, scope, path),
    "eq": _eq, "lt": _ordered(op.lt), "le": _ordered(op.le), "in": _in,
    "add": _computed(op.add), "sub": _computed(op.sub), "mul": _computed(op.mul),
    "days_between": _days_between, "date_add": _date_add, "count": _count,
    "exists": lambda part, scope, path: _count(part, scope, path) > 0, "sum": _sum,
    "called": _called, "seen": _seen, "distinct_seen": _distinct_seen, "confirmed": _confirmed,
}  # fmt: skip
