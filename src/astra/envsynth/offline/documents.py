"""The offline teacher's tool documents: made of the operation, never of the values asked for."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from astra.envsynth.asks import DocumentReply, ToolDocument
from astra.envsynth.offline import stateful_code
from astra.envsynth.offline.synonyms import unlike_name
from astra.envsynth.offline.tool_forms import with_form
from astra.llm.protocol import ProviderError
from astra.qa.knowledge.operations import (
    AGGREGATES,
    ARITHMETIC,
    EXTREMES,
    FREE_OPS,
    NO_FILTER,
    TABLE_OPS,
    WRITE_OPS,
)
from astra.text.forms import Form, written
from astra.text.mentions import mentions, misspells

Variables = Mapping[str, Any]
Table = Mapping[str, Any] | None

_VERBS = {
    "lookup": "get", "list": "list", "count": "count", "sum": "get", "mean": "get",
    "max": "get", "min": "get", "argmax": "find", "argmin": "find", "record": "get",
    "above": "list", "below": "list", "sort": "sort", "rows": "list", "page": "browse",
}  # fmt: skip
_FIXED_TYPES = {
    "date": "string", "days": "integer", "start": "string", "end": "string", "amount": "number",
    "bound": "number", "page": "integer",
}  # fmt: skip
_DESCRIBED = {
    "add_days": "Add days to a date.",
    "days_between": "Count the days between two dates, in either order.",
    "weekday": "Find the day of the week of a date.",
    "multiply": "Multiply an amount by a number.",
    "subtract": "Subtract a number from an amount.",
    "divide": "Divide an amount by a number.",
    "share": "Find what per cent of a whole a part is.",
}
_FILTERED = AGGREGATES | EXTREMES | {"list", "count"}
"""Operations over several rows, whose tools get an optional filter."""


def document(variables: Variables, _: random.Random) -> DocumentReply:
    """A document from the operation: of the values asked for it depends on what the user says."""
    operation, table = operation_of(variables), variables["table"]
    properties = {
        name: {"type": _parameter_type(operation, table, name)} for name in operation["arguments"]
    }
    properties |= _listed(properties, variables)
    if variables["other_form"]:
        properties |= _in_another_form(properties, operation, table)
    asked_otherwise = variables["unlike_name"]
    return DocumentReply(
        tool=ToolDocument(
            name=unlike_name(operation, variables["question"])
            if asked_otherwise
            else _name(operation),
            description=_description(operation, table),
            parameters=_schema(properties, list(properties)),
            output_schema=_output(operation, table, variables["answer"]["type"]),
        )
    )


def complexity(variables: Variables, _: random.Random) -> DocumentReply:
    """One optional filter for tools over several rows: a further column of what is asked about."""
    operation, table, tool = operation_of(variables), variables["table"], variables["tool"]
    parameters = tool["parameters"]
    column = _free_column(operation, table) if operation["op"] in _FILTERED else None
    if column is not None:
        properties = {
            **parameters["properties"],
            column: {"type": _parameter_type(operation, table, column)},
        }
        parameters = _schema(properties, parameters["required"])
    return DocumentReply(tool=ToolDocument.model_validate({**tool, "parameters": parameters}))


def operation_of(variables: Variables) -> dict[str, Any]:
    """The operation of an ask's sub-question. Raises ProviderError where no rule covers it."""
    operation = variables["operation"]
    if operation is None or operation["op"] not in TABLE_OPS | FREE_OPS | WRITE_OPS:
        raise ProviderError("the offline rules need a sub-question whose operation uses a tool")
    return operation


def _name(operation: Mapping[str, Any]) -> str:
    """The relation's words after a verb; alone where they begin with one."""
    asked, verb = operation["relation"].partition(".")[2], _VERBS.get(operation["op"])
    return f"{verb}_{asked}" if verb else asked


def _description(operation: Mapping[str, Any], table: Table) -> str:
    op = operation["op"]
    names = [name for name in operation["arguments"] if name != "page" or op != "page"]
    if op == "convert":
        return f"Convert an amount into another {names[-1]}."
    if op in _DESCRIBED:
        return _DESCRIBED[op]
    if op == "check":
        owner = next(name for name in names if name != operation["select"])
        return f"Check whether {_article(owner)} has that {_words(operation['select'])}."
    asked = _words(operation["relation"].partition(".")[2])
    if op in WRITE_OPS:
        return f"{asked.capitalize()}, given {' and '.join(map(_words, names))}."
    verb = _VERBS[op].capitalize()
    extra = "".join(f" and {_words(name)}" for name in names[1:])
    paged = ", page by page" if op == "page" else ""
    fields = f": {_listing(operation['select'])}" if op in ("record", "rows", "page") else ""
    return f"{verb} the {asked} of {_article(names[0])}{extra}{paged}{fields}."


def _listing(select: str) -> str:
    """The fields of a record, as a sentence names them."""
    *most, last = map(_words, select.split(":"))
    return f"{', '.join(most)} and {last}" if most else last


def _words(name: str) -> str:
    return name.replace("_", " ")


def _article(name: str) -> str:
    words = _words(name)
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def _schema(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _listed(properties: Mapping[str, Any], variables: Variables) -> dict[str, Any]:
    """The schemas of parameters for a plain word that the step alone says ("unpaid"): no agent is
    told it, so they list what their column holds."""
    operation, table = variables["operation"], variables["table"]
    told, own = variables["user_question"], variables["question"]
    listed: dict[str, Any] = {}
    for name, value in operation["arguments"].items():
        if table is None or name not in table["columns"] or not isinstance(value, str):
            continue
        if value != value.lower():  # a name
            continue
        if mentions(own, value) and not mentions(told, value) and not misspells(told, value):
            position = table["columns"].index(name)
            words = {row[position] for row in table["rows"]} | {value}
            listed[name] = {**properties[name], "enum": sorted(words)}
    return listed


def _in_another_form(
    properties: Mapping[str, Any], operation: Mapping[str, Any], table: Table
) -> dict[str, Any]:
    """The schemas of the parameters that can want another form: dates to calculate with, and the
    name of what a look-up is about, if all names of its column have the form."""
    op = operation["op"]
    if op in FREE_OPS - ARITHMETIC:
        return {
            name: with_form(name, schema, Form.DAY_FIRST)
            for name, schema in properties.items()
            if name in ("date", "start", "end")
        }
    if table is None or op not in TABLE_OPS:
        return {}
    filters = [name for name in properties if name not in (NO_FILTER.get(op), operation["select"])]
    for name in filters[:1]:
        position = table["columns"].index(name)
        if all(written(row[position], Form.LAST_FIRST) for row in table["rows"]):
            return {name: with_form(name, properties[name], Form.LAST_FIRST)}
    return {}


def _parameter_type(operation: Mapping[str, Any], table: Table, name: str) -> str:
    op = operation["op"]
    if op in WRITE_OPS:
        return stateful_code.parameter_type(operation["arguments"][name])
    if op in ARITHMETIC:
        return "number"
    if op in FREE_OPS or name == NO_FILTER.get(op):
        return _FIXED_TYPES[name]
    return _column_type(table, name)


def _column_type(table: Table, column: str) -> str:
    if table is None or column not in table["columns"]:
        raise ProviderError(f"no column {column!r} in the table of the operation")
    position = table["columns"].index(column)
    kinds = {type(row[position]) for row in table["rows"]}
    if kinds <= {bool}:
        return "boolean"
    if kinds <= {int}:
        return "integer"
    return "number" if kinds <= {int, float} else "string"


def _output(operation: Mapping[str, Any], table: Table, answer_type: str) -> dict[str, Any]:
    op, select = operation["op"], operation["select"]
    if op in AGGREGATES | ARITHMETIC | {"convert"}:
        return {"type": "number"}
    if op in ("count", "days_between"):
        return {"type": "integer"}
    if op == "check" or (op in WRITE_OPS and not select):
        return {"type": "boolean"}
    if op == "weekday":
        return {"type": "string"}
    if op == "add_days":
        return {"type": "string", "format": "date"}
    if op in ("record", "rows", "page"):
        return _structured(op, {name: _column_type(table, name) for name in select.split(":")})
    kind = {"type": _column_type(table, select.split(":")[0])}
    if op in ("list", "above", "below", "sort"):
        return {"type": "array", "items": kind}
    return {**kind, "format": "date"} if answer_type == "date" else kind


def _structured(op: str, columns: Mapping[str, str]) -> dict[str, Any]:
    """The schema of a record, of several, or of a page of them."""
    record = _closed({name: {"type": kind} for name, kind in columns.items()})
    rows = {"type": "array", "items": record}
    if op == "page":
        return _closed({"rows": rows, "next_page": {"type": ["integer", "null"]}})
    return record if op == "record" else rows


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _free_column(operation: Mapping[str, Any], table: Table) -> str | None:
    """A one-word column that is neither the table's key nor used by the operation."""
    if table is None:
        return None
    used = {*operation["arguments"], *operation["select"].split(":"), table["columns"][0]}
    asked = operation["relation"].split(".")[1]
    for column in table["columns"]:
        if column not in used and "_" not in column and column not in asked:
            return column
    return None
