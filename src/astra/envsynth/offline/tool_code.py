"""The offline teacher's Python: one small program per operation, its data as literals."""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from astra.envsynth.offline.tool_forms import as_given, reading_code
from astra.envsynth.truth import WHOLE_TABLE
from astra.qa.knowledge.operations import FREE_OPS, NO_FILTER, PAGE_ROWS
from astra.text.source import parsed_expression

AGGREGATES = {
    "sum": "sum(cells)",
    "mean": "sum(cells) / len(cells)",
    "max": "max(cells)",
    "min": "min(cells)",
}
Row = dict[str, Any]

_DATE = """def _day(text):
    try:
        return date.fromisoformat(text)
    except (TypeError, ValueError):
        raise ValueError(f"{text} is not a date like 2024-01-31") from None
"""

_NOT_ZERO = """    if {name} == 0:
        raise ValueError("{name} must not be 0")
"""

_TIDY = """def _tidy(value):
    value = round(value, 2)
    return int(value) if value == int(value) else value
"""


@dataclass(frozen=True)
class _Calculation:
    """The code of an operation that needs no data."""

    result: str
    helper: str
    imports: str = ""
    check: str = ""


# A parameter named like the class that it shadows does so inside the tool only.
_CALCULATIONS = {
    "add_days": _Calculation(
        "(_day(date) + timedelta(days=days)).isoformat()",
        _DATE,
        "from datetime import date, timedelta\n",
    ),
    "days_between": _Calculation(
        "abs((_day(end) - _day(start)).days)", _DATE, "from datetime import date\n"
    ),
    "weekday": _Calculation('_day(date).strftime("%A")', _DATE, "from datetime import date\n"),
    "multiply": _Calculation("_tidy(amount * times)", _TIDY),
    "subtract": _Calculation("_tidy(amount - minus)", _TIDY),
    "divide": _Calculation("_tidy(amount / by)", _TIDY, check=_NOT_ZERO.format(name="by")),
    "share": _Calculation("_tidy(100 * part / whole)", _TIDY, check=_NOT_ZERO.format(name="whole")),
}


def write_code(tool: Mapping[str, Any], operation: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """Source of a module that defines the tool; ``rows`` are its data (empty for calculations)."""
    imports, reading, readers = reading_code(tool["parameters"])
    if operation["op"] in FREE_OPS:
        calculation = _CALCULATIONS[operation["op"]]
        imports += calculation.imports
        blocks = [calculation.helper]
        body = f"{calculation.check}    return {calculation.result}\n"
    else:
        body, helpers = query_body(tool, operation)
        body = as_given(body, tool["parameters"])
        blocks = [_literal(rows), *helpers]
    signature = ", ".join(_parameters(tool))
    function = f'def {tool["name"]}({signature}):\n    """{tool["description"]}"""\n{reading}{body}'
    return _module(imports, [*blocks, *readers, function])


def read_rows(code: str) -> list[Row]:
    """The data of a module written here. ValueError where it has none."""
    start = code.find("ROWS = [\n")
    end = code.find("\n]\n", start)
    if start < 0 or end < 0:
        raise ValueError("the code holds no ROWS")
    lines = code[start + len("ROWS = [\n") : end].splitlines()
    return [_read_row(line) for line in lines]


def replace_rows(code: str, rows: Sequence[Row]) -> str:
    """The same module with other data."""
    start = code.index("ROWS = [\n")
    end = code.index("\n]\n", start) + len("\n]\n")
    return code[:start] + _literal(rows) + code[end:]


def excerpt(
    table: Mapping[str, Any],
    operation: Mapping[str, Any],
    tool: Mapping[str, Any],
    arguments: Mapping[str, Any],
    other_keys: int,
    rng: random.Random,
) -> list[Row]:
    """The rows that answer the gold call, and those of up to ``other_keys`` other keys; a small
    table whole.

    Keys are taken whole, so that every key the tool knows gets its true answer.
    """
    columns: list[str] = table["columns"]
    rows: Sequence[Any] = table["rows"]
    if len(rows) > WHOLE_TABLE:
        rows = _drawn(table, operation, arguments, other_keys, rng)
    wanted = _columns(columns, operation, tool)
    return [{name: row[columns.index(name)] for name in wanted} for row in rows]


def _drawn(
    table: Mapping[str, Any],
    operation: Mapping[str, Any],
    arguments: Mapping[str, Any],
    other_keys: int,
    rng: random.Random,
) -> list[Any]:
    """The rows of the key asked for and of some others, in table order."""
    columns: list[str] = table["columns"]
    checked = operation["select"] if operation["op"] == "check" else ""
    apart = {checked, NO_FILTER.get(operation["op"])}
    key = next(name for name in operation["arguments"] if name in columns and name not in apart)
    position = columns.index(key)
    others = list(dict.fromkeys(row[position] for row in table["rows"]))
    others = [value for value in others if value != arguments[key]]
    chosen = [arguments[key], *rng.sample(others, min(other_keys, len(others)))]
    if checked:  # one key for which the answer is yes, whatever it is here
        cell = columns.index(checked)
        chosen += [row[position] for row in table["rows"] if row[cell] == arguments[checked]][:1]
    return [row for row in table["rows"] if row[position] in chosen]


def _columns(
    columns: Sequence[str], operation: Mapping[str, Any], tool: Mapping[str, Any]
) -> list[str]:
    used = {*tool["parameters"]["properties"], *operation["arguments"]}
    used.update(operation["select"].split(":"))
    if operation["op"] == "count":
        used.add(columns[0])
    return [name for name in columns if name in used]


def _parameters(tool: Mapping[str, Any]) -> list[str]:
    schema = tool["parameters"]
    required = [name for name in schema["properties"] if name in schema["required"]]
    optional = [name for name in schema["properties"] if name not in schema["required"]]
    return [*required, *(f"{name}=None" for name in optional)]


def query_body(
    tool: Mapping[str, Any], operation: Mapping[str, Any], data: str = "ROWS"
) -> tuple[str, list[str]]:
    """The body of a tool that asks ``data`` (an expression), and the helpers it needs."""
    schema = tool["parameters"]
    required = [name for name in schema["properties"] if name in schema["required"]]
    optional = [name for name in schema["properties"] if name not in schema["required"]]
    op = operation["op"]
    keys = [name for name in required if name != NO_FILTER.get(op)]
    if op == "check":
        keys = [name for name in keys if name != operation["select"]]
    lines: list[str] = [f'rows = [row for row in {data} if row["{keys[0]}"] == {keys[0]}]']
    lines += ["if not rows:", f'    raise ValueError(f"no {keys[0]} named {{{keys[0]}}}")']
    for name in keys[1:]:
        lines += [
            f'if not any(row["{name}"] == {name} for row in {data}):',
            f'    raise ValueError(f"no {name} {{{name}}}")',
            f'rows = [row for row in rows if row["{name}"] == {name}]',
        ]
    for name in optional:
        lines += [
            f"if {name} is not None:",
            f'    rows = [row for row in rows if row["{name}"] == {name}]',
        ]
    empty = ["if not rows:", f'    raise ValueError(f"nothing found for {{{keys[0]}}}")']
    if (optional or keys[1:]) and op not in ("count", "list", "rows"):
        lines += empty
    if op == "check":
        lines += [
            f'if not any(row["{operation["select"]}"] == {operation["select"]} for row in {data}):',
            f'    raise ValueError(f"no {operation["select"]} named {{{operation["select"]}}}")',
        ]
    result, helpers = _result(operation)
    return "".join(f"    {line}\n" for line in [*lines, *result]), helpers


def _result(operation: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    op, select = operation["op"], operation["select"]
    match op:
        case "lookup":
            return [f'return rows[0]["{select}"]'], []
        case "list":
            return [f'return [row["{select}"] for row in rows]'], []
        case "check":
            return [f'return rows[0]["{select}"] == {select}'], []
        case "record":
            return [f"return {_record('rows[0]', select)}"], []
        case "rows":
            return [f"return [{_record('row', select)} for row in rows]"], []
        case "page":
            return [
                "first = (page - 1) * PAGE_ROWS if type(page) is int else -1",
                "if not 0 <= first < len(rows):",
                '    raise ValueError(f"no page {page}")',
                "last = first + PAGE_ROWS",
                f"found = [{_record('row', select)} for row in rows[first:last]]",
                'return {"rows": found, "next_page": page + 1 if last < len(rows) else None}',
            ], [f"PAGE_ROWS = {PAGE_ROWS}\n"]
        case "above" | "below":
            returned, measure = select.split(":")
            sign = ">" if op == "above" else "<"
            found = f'row["{returned}"] for row in rows if row["{measure}"] {sign} bound'
            return [f"return [{found}]"], []
        case "sort":
            returned, measure = select.split(":")
            return [
                f'rows = sorted(rows, key=lambda row: row["{measure}"])',
                f'return [row["{returned}"] for row in rows]',
            ], []
        case "count":
            return ["return len(rows)"], []
        case "convert":
            return [f'return _tidy(amount * rows[0]["{select}"])'], [_TIDY]
        case "argmax" | "argmin":
            returned, measure = select.split(":")
            pick = op.removeprefix("arg")
            return [
                f'best = {pick}(rows, key=lambda row: row["{measure}"])',
                f'return best["{returned}"]',
            ], []
        case _:
            return [
                f'cells = [row["{select}"] for row in rows]',
                f"return _tidy({AGGREGATES[op]})",
            ], [_TIDY]


def _record(row: str, select: str) -> str:
    """A literal of the selected cells of a row."""
    return "{" + ", ".join(f'"{name}": {row}["{name}"]' for name in select.split(":")) + "}"


def _literal(rows: Sequence[Row]) -> str:
    body = "".join(f"    {_written(row)},\n" for row in rows)
    return f"ROWS = [\n{body}]\n"


def _written(row: Row) -> str:
    return "{" + ", ".join(f"{json.dumps(name)}: {value!r}" for name, value in row.items()) + "}"


def _read_row(line: str) -> Row:
    row: Any = ast.literal_eval(parsed_expression(line.strip().rstrip(",")))
    return row


def _module(imports: str, blocks: Sequence[str]) -> str:
    head = [imports] if imports else []
    return "\n".join([*head, *blocks[:1]]) + "".join(f"\n\n{block}" for block in blocks[1:])
