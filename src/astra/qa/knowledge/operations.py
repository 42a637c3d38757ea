"""How an answer follows from knowledge tables: the operations and their exact semantics.

A sub-question carries an ``Operation(op, relation, table, arguments, select)``. Arguments that
name a table's columns are equality filters; a value is a JSON literal, or a reference to the
answer of another sub-question or to a part of it (references.py), always a scalar. A row of the
table matches if its cells equal every argument. The order of parameters means nothing (a stored
record has them sorted): where one is a cell and not a filter, ``select`` names it. The first
column of a table that takes new rows is its key.

====================  =================================  ===================================
op                    arguments / select                 answer
====================  =================================  ===================================
lookup                {key: v}; select = column          that cell; exactly one row matches
record                {key: v}; select = "a:b"           RECORD of those cells of the one row
rows                  {column: v}; select = "a:b:c"      LIST of RECORDs of those cells of the
                                                         matching rows; ``ordered`` false
page                  {column: v, page: n};              RECORD of ``rows``, the n-th PAGE_ROWS
                      select = "a:b:c"                   matching rows in table order as RECORDs,
                                                         and ``next_page``, n + 1 or null
check                 {key: v, column: w}                BOOLEAN whether that cell is w
list                  {column: v}; select = column       LIST of the cells of matching rows,
                                                         in table order; ``ordered`` false
above, below          {column: v, bound: n};             LIST of ``returned`` of matching rows
                      select = "returned:measure"        with measure > n (< n); not ordered
sort                  {column: v};                       LIST of ``returned`` of matching rows,
                      select = "returned:measure"        lowest measure first; no ties
count                 {column: v, ...} (1-2 filters)     NUMBER of matching rows (>= 1)
sum, mean, max, min   {column: v}; select = column       NUMBER over matching rows; mean is
                                                         rounded to 2 places, tolerance 0.01
argmax, argmin        {column: v};                       cell of ``returned`` in the matching
                      select = "returned:measure"        row with the largest (smallest)
                                                         ``measure``; never a tie
convert               {amount: n, currency|unit: c};     NUMBER round(amount * cell, 2) with
                      select = factor column             the factor of the row for c
multiply              {amount: n, times: m}; table = ""  NUMBER round(n * m, 2)
subtract              {amount: n, minus: m}; table = ""  NUMBER round(n - m, 2)
divide                {amount: n, by: m}; table = ""     NUMBER round(n / m, 2), tolerance 0.01;
                                                         m is not 0
share                 {part: n, whole: m}; table = ""    NUMBER round(100 * n / m, 2), per cent,
                                                         tolerance 0.01; m is not 0
add_days              {date: d, days: n}; table = ""     DATE: n days after d
days_between          {start: d, end: d}; table = ""     NUMBER of days, never negative
weekday               {date: d}; table = ""              ENUM: Monday .. Sunday
greater, less         {names: [..], values: [..]};       STRING: the name whose value is
                      table = ""                         largest (smallest); no tie; no tool
pick                  {value: reference}; table = ""     that value; no tool
insert                {key: v, column: w}, all columns;  that cell of the new row; refused where
                      select = column                    the key has a row (``already`` if equal);
                                                         columns of class IGNORE may be left out
update                {key: v, column: w};               w, the cell of the one row from now on;
                      select = column                    refused (``already``) where w stands
delete                {key: v}; select = column          that cell of the one row, now gone
====================  =================================  ===================================

A write that is refused changes nothing. Writes are made in the order of (hop level, id), and a
step that depends on a write without using its answer sees what it left.

A table named ``a+b`` is the natural join of tables ``a`` and ``b``: a knowledge excerpt holds it
beside the two, and ``rules.py`` checks that it is their join.

``relation`` is ``<asked of>.<asked for>``. Its part after the dot, prefixed by the verb of the
op, is the natural tool name: lookup ``listing.asking_price`` -> ``get_asking_price(listing)``;
list and count ``agent.listings`` -> ``list_listings(agent)``, ``count_listings(agent)``;
sum/mean/max/min ``agent.total_price`` -> ``get_total_price(agent)`` (the aggregate's word is part
of the relation); argmin ``agent.cheapest_listing`` -> ``find_cheapest_listing(agent)``;
record ``listing.details`` -> ``get_details(listing)``; rows and page ->
``list_listing_records(agent)``, ``browse_listing_pages(agent, page)``; above, below and sort ->
``list_listings_above(agent, bound)``, ``sort_listings_by_price(agent)``. Whole names are the tails
of checks (``listing.check_agent`` -> ``check_agent(listing, agent)``), ``amount.convert_amount``,
``length.convert_length``, ``amount.multiply_amount``, ``amount.subtract_amount``,
``amount.divide_amount``, ``amount.find_share``, ``date.add_days``, ``date.days_between``,
``date.find_weekday`` and of every write (``room.reserve_room``). The words of the relation occur
in the question. Filters of ``count`` beyond the first are attributes of the counted rows:
``count_listings(district, rooms)``.

A knowledge table is an excerpt: every row an answer needs, and distractor rows with other keys.
An answer computed from the excerpt is the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from operator import gt, lt
from typing import Any

from astra.qa.knowledge.references import NEXT_PAGE, ROWS, EvaluationError, as_number, resolve
from astra.records.qa import Bar, Operation, QuestionKind, Table
from astra.records.state import FieldClass, Write, WriteAction

AGGREGATES = frozenset({"sum", "mean", "max", "min"})
"""Operations that make one number of a column's cells."""
EXTREMES = frozenset({"argmax", "argmin"})
"""Operations that return a cell of the row with the largest or smallest measure."""
BOUNDED = frozenset({"above", "below"})
"""Operations that compare a column with a bound."""
UNORDERED = BOUNDED | {"list", "rows"}
"""Operations that return a list whose order says nothing."""
WRITE_OPS = frozenset({"insert", "update", "delete"})
ARITHMETIC = frozenset({"multiply", "subtract", "divide", "share"})
"""Operations that make one number of two."""
FREE_OPS = ARITHMETIC | {"add_days", "days_between", "weekday"}
"""Operations that need no table."""
ROUNDED = frozenset({"mean", "divide", "share"})
"""Operations whose number is rounded, so that a tool may or may not round as we do."""
TABLE_OPS = (
    AGGREGATES
    | EXTREMES
    | BOUNDED
    | {"lookup", "record", "check", "list", "rows", "page", "sort", "count", "convert"}
)
COMPARING = frozenset({"greater", "less"})
"""Operations that name one of several candidates, which the question names, too."""
PLAIN_OPS = COMPARING | {"pick"}
"""Operations that a reader does in the head, without a tool."""
CLASSIC_OPS = (
    AGGREGATES
    | EXTREMES
    | COMPARING
    | {"lookup", "list", "count", "convert", "add_days", "days_between"}
)
"""Operations that the prompt ``qa/decompose`` explains."""
NO_FILTER = {"convert": "amount", "above": "bound", "below": "bound", "page": "page"}
"""Operation -> its one argument that is a number of its own and filters nothing."""
PAGE_ROWS = 3
"""Rows of a full page."""
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class Refused(EvaluationError):
    """A write that the state does not admit: its goal holds already, or the place is taken."""

    def __init__(self, message: str, standing: Any, *, already: bool) -> None:
        super().__init__(message)
        self.standing = standing
        """The cell that it would have written, as it stands."""
        self.already = already
        """Whether its goal holds already."""


def evaluate(operation: Operation, tables: Sequence[Table], answers: Mapping[int, Any]) -> Any:
    """The answer as a JSON value, from the tables and earlier answers alone.

    Raises EvaluationError where a table, column, row or reference is missing, where the answer is
    not unique, or where values have the wrong type; Refused for a write that cannot be made.
    """
    arguments = {name: resolve(value, answers) for name, value in operation.arguments.items()}
    try:
        if operation.op == "pick":
            return arguments["value"]
        if operation.op in PLAIN_OPS:
            return _compare(operation.op, arguments)
        if operation.op in FREE_OPS:
            return _calculate(operation.op, arguments)
        if operation.op in WRITE_OPS:
            return _written(operation, table_named(operation.table, tables), arguments)
        if operation.op in TABLE_OPS:
            return _query(operation, table_named(operation.table, tables), arguments)
    except (ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise EvaluationError(f"{operation.op} {operation.relation}: {error!r}") from None
    raise EvaluationError(f"unknown op {operation.op!r}")


def perform(
    operation: Operation,
    bar: Bar | None,
    kind: QuestionKind,
    tables: Sequence[Table],
    answers: Mapping[int, Any],
) -> tuple[Any, tuple[Write, ...]]:
    """A step's answer and what it changes, where ``tables`` are the state before it.

    A barred step changes nothing. Where the kind says that its action is of no use or impossible,
    the answer is the cell as it stands. Raises EvaluationError as ``evaluate`` does, and where the
    state does not refuse the action as the kind says.
    """
    # The ``already`` that the kind expects of a refusal; None where the kind expects none.
    expected = {QuestionKind.ALREADY_SATISFIED: True, QuestionKind.INFEASIBLE: False}.get(kind)
    try:
        answer = evaluate(operation, tables, answers)
    except Refused as refusal:
        if bar is not Bar.NO_CALL or refusal.already is not expected:
            raise
        return refusal.standing, ()
    if bar is not None:
        if operation.op in WRITE_OPS and bar is Bar.NO_CALL and expected is not None:
            raise EvaluationError(f"{operation.relation} can be done, the kind is {kind}")
        return answer, ()
    return answer, writes_of(operation, answers)


def writes_of(operation: Operation, answers: Mapping[int, Any]) -> tuple[Write, ...]:
    """The changes that an operation makes if it can be carried out; none if it only reads."""
    if operation.op not in WRITE_OPS:
        return ()
    given = {name: resolve(value, answers) for name, value in operation.arguments.items()}
    action = WriteAction(operation.op)
    where = {} if action is WriteAction.INSERT else _filters(operation, given)
    values = {name: value for name, value in given.items() if name not in where}
    return (Write(action=action, table=operation.table, where=where, values=values),)


def rows_meant(operation: Operation, tables: Sequence[Table]) -> int:
    """How many rows an update or a deletion chooses; its arguments are no references."""
    table = table_named(operation.table, tables)
    return len(_matching(table, _filters(operation, operation.arguments)))


def _filters(operation: Operation, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that choose rows: all but the cell that a check or an update states."""
    stated = operation.select if operation.op in ("check", "update") else None
    return {name: value for name, value in given.items() if name != stated}


def after(tables: Sequence[Table], writes: Sequence[Write]) -> tuple[Table, ...]:
    """The tables after the writes, with every join made anew from its parts."""
    changed = {table.name: table for table in tables}
    for write in writes:
        changed[write.table] = _changed(changed[write.table], write)
    return tuple(
        join(name, [changed[part] for part in name.split("+")]) if "+" in name else table
        for name, table in changed.items()
    )


def _changed(table: Table, write: Write) -> Table:
    rows = list(table.rows)
    if write.action is WriteAction.INSERT:
        rows.append(tuple(write.values.get(column) for column in table.columns))
    else:
        chosen = _matching(table, write.where)
        if write.action is WriteAction.DELETE:
            rows = [row for row in rows if row not in chosen]
        else:
            rows = [_updated(table, row, write) if row in chosen else row for row in rows]
    return table.model_copy(update={"rows": tuple(rows)})


def _updated(table: Table, row: tuple[Any, ...], write: Write) -> tuple[Any, ...]:
    cells = zip(table.columns, row, strict=True)
    return tuple(write.values.get(column, cell) for column, cell in cells)


def join(name: str, parts: Sequence[Table]) -> Table:
    """The natural join: rows that agree in every shared column, with shared columns once."""
    columns, rows = parts[0].columns, list(parts[0].rows)
    for part in parts[1:]:
        shared = [column for column in part.columns if column in columns]
        fresh = [at for at, column in enumerate(part.columns) if column not in columns]
        by_key: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
        for row in part.rows:
            key = tuple(row[part.columns.index(column)] for column in shared)
            by_key.setdefault(key, []).append(tuple(row[at] for at in fresh))
        rows = [
            (*row, *rest)
            for row in rows
            for rest in by_key.get(tuple(row[columns.index(column)] for column in shared), ())
        ]
        columns = (*columns, *(part.columns[at] for at in fresh))
    return Table(name=name, columns=columns, rows=tuple(rows))


def table_named(name: str, tables: Sequence[Table]) -> Table:
    """The table of a name. Raises EvaluationError where there is none."""
    for table in tables:
        if table.name == name:
            return table
    raise EvaluationError(f"no table {name!r}")


def _calculate(op: str, arguments: Mapping[str, Any]) -> Any:
    if op in ARITHMETIC:
        return _tidy(_combined(op, arguments))
    if op == "days_between":
        ends = [date.fromisoformat(arguments[name]) for name in ("start", "end")]
        return abs((ends[1] - ends[0]).days)
    start = date.fromisoformat(arguments["date"])
    if op == "weekday":
        return WEEKDAYS[start.weekday()]
    return (start + timedelta(days=arguments["days"])).isoformat()


def _combined(op: str, given: Mapping[str, Any]) -> Any:
    """The number that an operation of ARITHMETIC makes, before it is rounded."""
    arguments = {name: as_number(value) for name, value in given.items()}
    match op:
        case "multiply":
            return arguments["amount"] * arguments["times"]
        case "subtract":
            return arguments["amount"] - arguments["minus"]
        case "divide":
            return arguments["amount"] / arguments["by"]
        case _:
            return 100 * arguments["part"] / arguments["whole"]


def _query(operation: Operation, table: Table, arguments: Mapping[str, Any]) -> Any:
    """What an operation reads off a table's matching rows."""
    op, select = operation.op, operation.select
    position = {column: index for index, column in enumerate(table.columns)}
    filters = _filters(operation, arguments)
    number = filters.pop(NO_FILTER[op]) if op in NO_FILTER else None
    if op == "check":
        row = _only(_matching(table, filters), table, filters)
        return bool(row[position[select]] == arguments[select])
    rows = _matching(table, filters)
    if not rows:
        raise EvaluationError(f"no row of {table.name} with {filters}")
    if op == "count":
        return len(rows)
    if op in ("record", "rows", "page"):
        records = [{name: row[position[name]] for name in select.split(":")} for row in rows]
        if op == "record":
            return _only(records, table, filters)
        return records if op == "rows" else _page(records, number)
    if op in EXTREMES | BOUNDED | {"sort"}:
        return _ranked(operation, table, rows, filters, number)
    cells = [row[position[select]] for row in rows]
    if op == "list":
        return cells
    if op in ("lookup", "convert"):
        cell = _only(rows, table, filters)[position[select]]
        return cell if op == "lookup" else _tidy(as_number(number) * as_number(cell))
    return _aggregate(op, cells)


def _page(records: Sequence[dict[str, Any]], number: Any) -> dict[str, Any]:
    """A page of records. Raises EvaluationError where there is no page of that number."""
    start = (number - 1) * PAGE_ROWS
    if type(number) is not int or not 0 <= start < len(records):
        raise EvaluationError(f"there is no page {number!r}")
    more = start + PAGE_ROWS < len(records)
    return {
        ROWS: list(records[start : start + PAGE_ROWS]),
        NEXT_PAGE: number + 1 if more else None,
    }


def _ranked(
    operation: Operation,
    table: Table,
    rows: Sequence[Any],
    filters: Mapping[str, Any],
    bound: Any,
) -> Any:
    """The cells that an operation returns of rows that it orders or bounds by a measure."""
    returned, measure = (table.columns.index(column) for column in operation.select.split(":"))
    if operation.op in EXTREMES:
        extreme = max if operation.op == "argmax" else min
        best = extreme(row[measure] for row in rows)
        return _only([row for row in rows if row[measure] == best], table, filters)[returned]
    if operation.op == "sort":
        if len({row[measure] for row in rows}) < len(rows):
            raise EvaluationError(f"rows of {table.name} with {filters} tie")
        return [row[returned] for row in sorted(rows, key=lambda row: row[measure])]
    beyond = gt if operation.op == "above" else lt
    return [row[returned] for row in rows if beyond(row[measure], bound)]


def _written(operation: Operation, table: Table, arguments: Mapping[str, Any]) -> Any:
    """A write's answer. Raises Refused where the state does not admit it."""
    column, place = operation.select, table.columns.index(operation.select)
    if operation.op == "insert":
        made = {name for name, kind in table.fields.items() if kind is FieldClass.IGNORE}
        if not set(table.columns) - made <= set(arguments) <= set(table.columns):
            needed = [name for name in table.columns if name not in made]
            raise EvaluationError(f"a new row of {table.name} needs {needed}")
        filters = {name: arguments[name] for name in table.columns[:1] if name in arguments}
        rows = _matching(table, filters) if filters else []
        if rows:
            wanted = tuple(arguments[name] for name in table.columns)
            raise Refused(f"{filters} has a row", rows[0][place], already=wanted in rows)
        return arguments[column]
    filters = _filters(operation, arguments)
    standing = _only(_matching(table, filters), table, filters)[place]
    if operation.op == "delete":
        return standing
    if standing == arguments[column]:
        raise Refused(f"{column} of {filters} is so already", standing, already=True)
    return arguments[column]


def _matching(table: Table, filters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    if strange := [column for column in filters if column not in table.columns]:
        raise EvaluationError(f"table {table.name} has no columns {strange}")
    places = [(table.columns.index(column), value) for column, value in filters.items()]
    return [row for row in table.rows if all(row[at] == value for at, value in places)]


def _only(rows: Sequence[Any], table: Table, filters: Mapping[str, Any]) -> Any:
    """The one row that there must be. Raises EvaluationError where there is none or several."""
    if len(rows) != 1:
        raise EvaluationError(f"{len(rows)} rows of {table.name} qualify for {filters}")
    return rows[0]


def _aggregate(op: str, cells: Sequence[Any]) -> Any:
    if op == "mean":
        return _tidy(sum(cells) / len(cells))
    return _tidy({"sum": sum, "max": max, "min": min}[op](cells))


def _tidy(value: float) -> float | int:
    """The number rounded to two places, as an integer where it is whole."""
    rounded = round(value, 2)
    return int(rounded) if rounded == int(rounded) else rounded


def _compare(op: str, arguments: Mapping[str, Any]) -> Any:
    pairs = list(zip(arguments["names"], arguments["values"], strict=True))
    extreme = max if op == "greater" else min
    best = extreme(value for _, value in pairs)
    winners = [name for name, value in pairs if value == best]
    if len(winners) != 1:
        raise EvaluationError(f"{len(winners)} of {len(pairs)} candidates tie")
    return winners[0]
