"""A tool's Python source, compiled from its checks, changes and result.

The source means what the evaluator of expressions means: null is passed on by what computes, and
false to what compares. All values are computed before the first write.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from astra.records.state import WriteAction
from astra.records.world import Change, Expr, WorldTable
from astra.worlds.specs import ListResult, Parameter, RecordResult, RowResult, ToolSpec

PAGE = 10
"""Rows on a page of a search."""
MAX_REFUSAL = 160
"""The most characters of what a tool says when it refuses."""

_HELPERS = {
    "_row": """def _row(world, table, key, value):
    return next((row for row in world.tables[table] if row[key] == value), None)""",
    "_rows": """def _rows(world, table, where):
    rows = world.tables[table]
    return [row for row in rows if all(row[name] == value for name, value in where.items())]""",
    "_cell": """def _cell(row, column):
    return None if row is None else row[column]""",
    "_less": """def _less(one, other):
    return one is not None and other is not None and one < other""",
    "_at_most": """def _at_most(one, other):
    return one is not None and other is not None and one <= other""",
    "_add": """def _add(one, other):
    return None if one is None or other is None else one + other""",
    "_sub": """def _sub(one, other):
    return None if one is None or other is None else one - other""",
    "_mul": """def _mul(one, other):
    return None if one is None or other is None else one * other""",
    "_days": """def _days(first, second):
    if first is None or second is None:
        return None
    return (date.fromisoformat(second[:10]) - date.fromisoformat(first[:10])).days""",
    "_after": """def _after(day, days):
    if day is None or days is None:
        return None
    return (date.fromisoformat(day[:10]) + timedelta(days=days)).isoformat()""",
    "_check_date": """def _check_date(text):
    try:
        right = "2000" < text < "2100" and date.fromisoformat(text).isoformat() == text
    except ValueError:
        right = False
    if not right:
        raise ValueError("dates are written YYYY-MM-DD")""",
}
_BINARY = {"lt": "_less", "le": "_at_most", "add": "_add", "sub": "_sub", "mul": "_mul",
           "days_between": "_days", "date_add": "_after"}  # fmt: skip


class NotCompiled(ValueError):
    """An expression that no code of a tool can have: it asks about the trace, or is none."""


class Source:
    """Compiles expressions and tools over the tables of one world."""

    def __init__(self, tables: tuple[WorldTable, ...]) -> None:
        self._tables = {table.name: table for table in tables}
        self._rows_of: dict[str, str] = {}
        """Look-ups of rows by key, and the local variable that holds each."""

    def expression(self, expr: Expr) -> str:
        """Python for an expression. Raises NotCompiled."""
        if expr is None or isinstance(expr, str | int | float):
            return repr(expr)
        if not isinstance(expr, dict) or len(cast("dict[str, Any]", expr)) != 1:
            raise NotCompiled(f"no expression: {expr!r}")
        ((name, operand),) = cast("dict[str, Any]", expr).items()
        e = self.expression
        if name in _BINARY:
            return f"{_BINARY[name]}({e(operand[0])}, {e(operand[1])})"
        match name:
            case "arg":
                return operand
            case "clock":
                return "world.clock[:10]" if operand == "date" else "world.clock"
            case "row":
                return self._row(operand[0], e(operand[1]))
            case "field":
                return f"_cell({e(operand[0])}, {operand[1]!r})"
            case "and" | "or":
                return "(" + f" {name} ".join(e(part) for part in operand) + ")"
            case "not":
                return f"(not {e(operand)})"
            case "eq":
                same = "is" if operand[1] is None else "=="
                return f"({e(operand[0])} {same} {e(operand[1])})"
            case "in":
                return f"({e(operand[0])} in [{', '.join(e(part) for part in operand[1])}])"
            case "count" | "exists":
                counted = "len" if name == "count" else "bool"
                return f"{counted}({self._rows(operand[0], operand[1])})"
            case "sum":
                rows = self._rows(operand[0], operand[2])
                return f"sum(row[{operand[1]!r}] for row in {rows})"
            case _:
                raise NotCompiled(f"no tool can tell {name!r}")

    def _rows(self, table: str, where: Mapping[str, Expr]) -> str:
        cells = ", ".join(f"{column!r}: {self.expression(v)}" for column, v in where.items())
        return f"_rows(world, {table!r}, {{{cells}}})"

    def _row(self, table: str, key: str) -> str:
        """The local variable that holds a row; each is looked up once, before any write."""
        name = self._tables[table].key
        found = f"_row(world, {table!r}, {name!r}, {key})"
        if found not in self._rows_of:
            stem = name.removesuffix("_id")
            same = sum(
                known.rstrip("0123456789") == f"{stem}_row" for known in self._rows_of.values()
            )
            self._rows_of[found] = f"{stem}_row{same + 1 if same else ''}"
        return self._rows_of[found]

    def tool(self, spec: ToolSpec) -> str:
        """The source that defines the tool, with the helpers it needs."""
        required = [p.name for p in spec.parameters if not p.optional]
        optional = [f"{p.name}=None" for p in spec.parameters if p.optional]
        self._rows_of = {}
        head = f"def {spec.name}({', '.join(['world', *required, *optional])}):"
        lines: list[str] = []
        for parameter in spec.parameters:
            lines += self._admitted(parameter)
        for check in spec.checks:
            lines.append(f"    if not {self.expression(check.require)}:")
            lines.append(f"        raise ValueError({check.message!r})")
        lines += self._changes(spec)
        found = [f"    {name} = {row}" for row, name in self._rows_of.items()]
        body = "\n".join([head, *found, *lines])
        return self._helpers(body) + body + "\n"

    def _admitted(self, parameter: Parameter) -> list[str]:
        name = parameter.name
        given = f"{name} is not None and " if parameter.optional else ""
        if parameter.table:
            missing = f"{self._row(parameter.table, name)} is None"
            message = f"there is no such {name.replace('_', ' ').removesuffix(' id')}"
            return [f"    if {given}{missing}:", f"        raise ValueError({message!r})"]
        if parameter.type == "date":
            check = f"_check_date({name})"
            return (
                [f"    if {name} is not None:", f"        {check}"] if given else [f"    {check}"]
            )
        return []

    def _changes(self, spec: ToolSpec) -> list[str]:
        """Values first, then writes, then the result."""
        before: list[str] = []
        after: list[str] = []
        for at, change in enumerate(spec.changes):
            values, writes = self._change(change, f"v{at}")
            before += values
            after += writes
        match spec.result:
            case RowResult(table, key, columns):
                before.append(f"shown = {self.expression(key)}")
                after.append(f"row = _row(world, {table!r}, {self._tables[table].key!r}, shown)")
                after.append(f"return {{name: row[name] for name in {list(columns)!r}}}")
            case RecordResult(values):
                cells = ", ".join(f"{k!r}: {self.expression(v)}" for k, v in values.items())
                after.append(f"return {{{cells}}}")
            case ListResult():
                after += self._listed(spec.result)
        return [f"    {line}" for line in (*before, *after)]

    def _change(self, change: Change, name: str) -> tuple[list[str], list[str]]:
        """What computes a change's values, and what then makes it."""
        table = self._tables[change.table]
        key = (
            f"world.new_id({', '.join([repr(table.name), *map(self.expression, change.parts)])})"
            if change.action is WriteAction.INSERT
            else self._row(table.name, self.expression(change.key))
        )
        target = change.binds or name
        cells = {column: self.expression(value) for column, value in change.values.items()}
        if change.action is WriteAction.INSERT:
            names = [column.name for column in table.columns]
            if {table.key, *cells} != set(names):
                raise NotCompiled(f"a new row of {table.name} needs {names}, has {sorted(cells)}")
            cells = {table.key: target} | {n: cells[n] for n in names if n != table.key}
        record = ", ".join(f"{column!r}: {value}" for column, value in cells.items())
        before = [f"{target} = {key}"]
        if change.action is not WriteAction.DELETE:
            before.append(f"{name}_cells = {{{record}}}")
        match change.action:
            case WriteAction.INSERT:
                return before, [f"world.tables[{table.name!r}].append({name}_cells)"]
            case WriteAction.DELETE:
                return before, [f"world.tables[{table.name!r}].remove({target})"]
            case WriteAction.UPDATE if change.when is None:
                return before, [f"{target}.update({name}_cells)"]
            case WriteAction.UPDATE:
                when = f"{name}_due = {self.expression(change.when)}"
                return [*before, when], [f"if {name}_due:", f"    {target}.update({name}_cells)"]

    def _listed(self, result: ListResult) -> list[str]:
        key = self._tables[result.table].key
        lines = [f"rows = sorted(world.tables[{result.table!r}], key=lambda row: row[{key!r}])"]
        for one in result.filters:
            how = {"eq": "==", "most": "<=", "least": ">="}[one.how]
            lines.append(f"if {one.argument} is not None:")
            lines.append(
                f"    rows = [row for row in rows if row[{one.column!r}] {how} {one.argument}]"
            )
        lines.append(
            f"items = [{{name: row[name] for name in {list(result.columns)!r}}} for row in rows]"
        )
        if result.how == "all":
            return [*lines, "return items"]
        if result.how == "only":
            return [
                *lines,
                "if not items:",
                "    raise ValueError('nobody matches')",
                "if len(items) > 1:",
                "    raise ValueError('several match; give more')",
                "return items[0]",
            ]
        return [
            *lines,
            "page = 1 if page is None else page",
            f"pages = max(1, (len(items) + {PAGE - 1}) // {PAGE})",
            "if page > pages:",
            "    raise ValueError('there is no such page')",
            f"items = items[(page - 1) * {PAGE}:page * {PAGE}]",
            "return {'items': items, 'page': page, 'pages': pages}",
        ]

    def _helpers(self, body: str) -> str:
        used = [name for name in _HELPERS if re.search(rf"\b{name}\(", body)]
        texts = [_HELPERS[name] for name in used]
        imports = ["from datetime import date, timedelta"] if "date." in "".join(texts) else []
        return "".join(f"{text}\n\n\n" for text in (*imports, *texts))


def tables_in(expr: Any) -> set[str]:
    """The tables that an expression looks at."""
    found: set[str] = set()
    if isinstance(expr, dict):
        for name, operand in cast("dict[str, Any]", expr).items():
            if name in ("row", "count", "exists", "sum"):
                found.add(operand[0])
            found |= tables_in(operand)
    elif isinstance(expr, list | tuple):
        for part in cast("list[Any]", expr):
            found |= tables_in(part)
    return found
