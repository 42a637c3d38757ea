"""How an answer follows from knowledge tables: the operations and their exact semantics.

A sub-question carries an ``Operation(op, relation, table, arguments, select)``. Arguments that
name a table's columns are equality filters; a value is a JSON literal or ``{"from": id}``, the
answer of sub-question ``id`` (always a scalar). ``matching`` below means the rows of
``knowledge[table]`` whose cells equal every argument. Parameters are one word each.

====================  =================================  ===================================
op                    arguments / select                 answer
====================  =================================  ===================================
lookup                {key: v}; select = column          that cell; exactly one row matches
list                  {column: v}; select = column       LIST of the cells of matching rows,
                                                         in table order; ``ordered`` false
count                 {column: v, ...} (1-2 filters)     NUMBER of matching rows (>= 1)
sum, mean, max, min   {column: v}; select = column       NUMBER over matching rows; mean is
                                                         rounded to 2 places, tolerance 0.01
argmax, argmin        {column: v};                       cell of ``returned`` in the matching
                      select = "returned:measure"        row with the largest (smallest)
                                                         ``measure``; never a tie
convert               {amount: n, currency: c};          NUMBER round(amount * cell, 2) with
                      select = "rate"                    the rate of the row for currency c
add_days              {date: d, days: n}; table = ""     DATE: n days after d
days_between          {start: d, end: d}; table = ""     NUMBER of days, never negative
greater, less         {names: [..], values: [..]};       STRING: the name whose value is
                      table = ""                         largest (smallest); no tie; no tool
====================  =================================  ===================================

``relation`` is ``<asked of>.<asked for>``. Its part after the dot, prefixed by the verb of the
op, is the natural tool name: lookup ``listing.asking_price`` -> ``get_asking_price(listing)``;
list and count ``agent.listings`` -> ``list_listings(agent)``, ``count_listings(agent)``;
sum/mean/max/min ``agent.total_price`` -> ``get_total_price(agent)`` (the aggregate's word is part
of the relation); argmin ``agent.cheapest_listing`` -> ``find_cheapest_listing(agent)``;
``amount.convert_amount``, ``date.add_days`` and ``date.days_between`` are whole names. The words of
the relation occur in the question. Filters of ``count`` beyond the first are attributes of the
counted rows: ``count_listings(district, rooms)``.

A knowledge table is an excerpt: every row an answer needs, and distractor rows with other keys.
An answer computed from the excerpt is the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from astra.records.qa import Operation, Table

AGGREGATES = frozenset({"sum", "mean", "max", "min"})
TABLE_OPS = AGGREGATES | {"lookup", "list", "count", "argmax", "argmin", "convert"}
TOOL_OPS = TABLE_OPS | {"add_days", "days_between"}
PLAIN_OPS = frozenset({"greater", "less"})
"""Operations that a reader does in the head: no tool."""


class EvaluationError(Exception):
    """The operation has no (unique) answer in the tables given; the message says why."""


def references(operation: Operation) -> tuple[int, ...]:
    """Ids of the sub-questions whose answers the arguments use, ascending."""
    found: set[int] = set()
    for value in operation.arguments.values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict) and isinstance(item.get("from"), int):
                found.add(item["from"])
    return tuple(sorted(found))


def evaluate(operation: Operation, tables: Sequence[Table], answers: Mapping[int, Any]) -> Any:
    """The answer as a JSON value, from the tables and earlier answers alone.

    Raises EvaluationError where a table, column, row or reference is missing, where the answer is
    not unique, or where values have the wrong type.
    """
    arguments = {name: _resolve(value, answers) for name, value in operation.arguments.items()}
    try:
        if operation.op in PLAIN_OPS:
            return _compare(operation.op, arguments)
        if operation.op == "add_days":
            start = date.fromisoformat(arguments["date"])
            return (start + timedelta(days=arguments["days"])).isoformat()
        if operation.op == "days_between":
            ends = [date.fromisoformat(arguments[name]) for name in ("start", "end")]
            return abs((ends[1] - ends[0]).days)
        if operation.op in TABLE_OPS:
            return _query(operation, _table(operation.table, tables), arguments)
    except (KeyError, TypeError, ValueError) as error:
        raise EvaluationError(f"{operation.op} {operation.relation}: {error!r}") from None
    raise EvaluationError(f"unknown op {operation.op!r}")


def _resolve(value: Any, answers: Mapping[int, Any]) -> Any:
    if isinstance(value, list):
        return [_resolve(item, answers) for item in value]
    if isinstance(value, dict):
        if set(value) != {"from"}:
            raise EvaluationError(f"argument {value!r} is neither a literal nor a reference")
        if value["from"] not in answers:
            raise EvaluationError(f"no answer of sub-question {value['from']}")
        return answers[value["from"]]
    return value


def _table(name: str, tables: Sequence[Table]) -> Table:
    for table in tables:
        if table.name == name:
            return table
    raise EvaluationError(f"no table {name!r}")


def _query(operation: Operation, table: Table, arguments: Mapping[str, Any]) -> Any:
    position = {column: index for index, column in enumerate(table.columns)}
    filters = dict(arguments)
    amount = filters.pop("amount") if operation.op == "convert" else None
    rows = [row for row in table.rows if all(row[position[c]] == v for c, v in filters.items())]
    if not rows:
        raise EvaluationError(f"no row of {table.name} with {filters}")
    if operation.op == "count":
        return len(rows)
    if operation.op in ("argmax", "argmin"):
        returned, measure = (position[column] for column in operation.select.split(":"))
        best = (max if operation.op == "argmax" else min)(row[measure] for row in rows)
        return _only([row for row in rows if row[measure] == best], table, filters)[returned]
    cells = [row[position[operation.select]] for row in rows]
    if operation.op == "list":
        return cells
    if operation.op in ("lookup", "convert"):
        cell = _only(rows, table, filters)[position[operation.select]]
        return cell if operation.op == "lookup" else _tidy(amount * cell)
    return _aggregate(operation.op, cells)


def _only(rows: Sequence[Any], table: Table, filters: Mapping[str, Any]) -> Any:
    if len(rows) != 1:
        raise EvaluationError(f"{len(rows)} rows of {table.name} qualify for {filters}")
    return rows[0]


def _aggregate(op: str, cells: Sequence[Any]) -> Any:
    if op == "mean":
        return _tidy(sum(cells) / len(cells))
    return _tidy({"sum": sum, "max": max, "min": min}[op](cells))


def _tidy(value: float) -> float | int:
    """Two decimal places; whole numbers as integers."""
    rounded = round(value, 2)
    return int(rounded) if rounded == int(rounded) else rounded


def _compare(op: str, arguments: Mapping[str, Any]) -> Any:
    pairs = list(zip(arguments["names"], arguments["values"], strict=True))
    best = (max if op == "greater" else min)(value for _, value in pairs)
    winners = [name for name, value in pairs if value == best]
    if len(winners) != 1:
        raise EvaluationError(f"{len(winners)} of {len(pairs)} candidates tie")
    return winners[0]
