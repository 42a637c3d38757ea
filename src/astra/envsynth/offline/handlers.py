"""The offline teacher of environment synthesis: one rule per template, over operations.

A rule answers only where a sub-question states its operation. Otherwise it raises ProviderError,
as a model would that cannot be reached.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from astra.envsynth.asks import (
    CallReply,
    ClusterReply,
    CodeReply,
    DocumentReply,
    MergedCall,
    MergeReply,
    ToolDocument,
)
from astra.envsynth.offline import stateful_code, tool_code
from astra.envsynth.offline.stateful_code import WRITE_OPS
from astra.llm.protocol import OfflineHandlers, ProviderError
from astra.records.base import canonical_json

Variables = Mapping[str, Any]

_VERBS = {
    "lookup": "get", "list": "list", "count": "count", "sum": "get", "mean": "get",
    "max": "get", "min": "get", "argmax": "find", "argmin": "find", "record": "get",
    "above": "list", "below": "list", "sort": "sort",
}  # fmt: skip
_WHOLE_NAMES = {"check", "convert", *tool_code.FREE_OPS, *WRITE_OPS}
_FIXED_TYPES = {
    "amount": "number", "date": "string", "days": "integer", "start": "string", "end": "string",
    "times": "number", "bound": "number",
}  # fmt: skip
_DESCRIBED = {
    "add_days": "Add days to a date.",
    "days_between": "Count the days between two dates, in either order.",
    "weekday": "Find the day of the week of a date.",
    "multiply": "Multiply an amount by a number.",
}
_SEVERAL_ROWS = frozenset({"list", "count", "sum", "mean", "max", "min", "argmax", "argmin"})


def document(variables: Variables, _: random.Random) -> DocumentReply:
    """A document from the operation alone: nothing in it depends on the values asked for."""
    operation = _operation(variables)
    table = variables["table"]
    properties = {
        name: {"type": _parameter_type(operation, table, name)} for name in operation["arguments"]
    }
    return DocumentReply(
        tool=ToolDocument(
            name=_name(operation),
            description=_description(operation, table),
            parameters=_schema(properties, list(properties)),
            output_schema=_output(operation, table, variables["answer"]["type"]),
        )
    )


def complexity(variables: Variables, _: random.Random) -> DocumentReply:
    """One optional filter for tools over several rows: a further column of what is asked about."""
    operation, table, tool = _operation(variables), variables["table"], variables["tool"]
    parameters = tool["parameters"]
    column = _free_column(operation, table) if operation["op"] in _SEVERAL_ROWS else None
    if column is not None:
        properties = {
            **parameters["properties"],
            column: {"type": _parameter_type(operation, table, column)},
        }
        parameters = _schema(properties, parameters["required"])
    return DocumentReply(tool=ToolDocument.model_validate({**tool, "parameters": parameters}))


def call(variables: Variables, _: random.Random) -> CallReply:
    """The operation's arguments, with earlier answers put in."""
    known = {item["id"]: item["answer"] for item in variables["dependencies"]}
    arguments: dict[str, Any] = {}
    for name, value in _operation(variables)["arguments"].items():
        if isinstance(value, dict):
            if value.get("from") not in known:
                raise ProviderError(f"argument {name!r} needs the answer of {value!r}")
            value = known[value["from"]]
        arguments[name] = value
    return CallReply(arguments=arguments)


def code(variables: Variables, rng: random.Random) -> CodeReply:
    """The operation as a small program over an excerpt of its table."""
    operation, table, tool = _operation(variables), variables["table"], variables["tool"]
    if operation["op"] in tool_code.FREE_OPS:
        return CodeReply(code=tool_code.write_code(tool, operation, []))
    if table is None:
        raise ProviderError(f"table {operation['table']!r} is not among the knowledge")
    rows = tool_code.excerpt(
        table, operation, tool, variables["arguments"], variables["other_keys"], rng
    )
    return CodeReply(code=tool_code.write_code(tool, operation, rows))


def code_stateful(variables: Variables, _: random.Random) -> CodeReply:
    """The operation as a small program over the tables of the world."""
    operation = _operation(variables)
    source = stateful_code.write_stateful_code(variables["tool"], operation, variables["world"])
    return CodeReply(code=source)


def cluster(variables: Variables, _: random.Random) -> ClusterReply:
    """Same operation, relation, parameters and return shape: one tool can serve them."""
    groups: dict[str, list[int]] = {}
    for member in variables["members"]:
        operation = member["operation"] or {}
        shape = canonical_json(
            [
                {key: operation.get(key) for key in ("op", "relation", "table", "select")},
                member["tool"]["parameters"],
                member["tool"]["output_schema"],
                sorted(member["arguments"]),
            ]
        )
        groups.setdefault(shape, []).append(member["id"])
    return ClusterReply(groups=list(groups.values()))


def merge_code(variables: Variables, _: random.Random) -> MergeReply:
    """The base's program over the union of all members' data, in first-seen order."""
    members: list[dict[str, Any]] = variables["members"]
    base: str = members[0]["code"]
    merged = base
    if any(member["code"] != base for member in members):
        rows: dict[str, tool_code.Row] = {}
        try:
            for member in members:
                for row in tool_code.read_rows(member["code"]):
                    rows.setdefault(canonical_json(row), row)
        except (ValueError, SyntaxError) as error:
            raise ProviderError(f"the data cannot be merged by rule: {error}") from error
        if len({tuple(sorted(row)) for row in rows.values()}) > 1:
            raise ProviderError("the members' data have different columns")
        merged = tool_code.replace_rows(base, list(rows.values()))
    calls = [MergedCall(id=member["id"], arguments=member["arguments"]) for member in members]
    return MergeReply(code=merged, calls=calls)


HANDLERS: OfflineHandlers = {
    "envsynth/document": document,
    "envsynth/complexity": complexity,
    "envsynth/call": call,
    "envsynth/code": code,
    "envsynth/code_stateful": code_stateful,
    "envsynth/cluster": cluster,
    "envsynth/merge_code": merge_code,
}


def _operation(variables: Variables) -> dict[str, Any]:
    operation = variables["operation"]
    if operation is None or operation["op"] not in {*_VERBS, *_WHOLE_NAMES}:
        raise ProviderError("the offline rules need a sub-question whose operation uses a tool")
    return operation


def _name(operation: Mapping[str, Any]) -> str:
    asked = operation["relation"].partition(".")[2]
    op = operation["op"]
    return asked if op in _WHOLE_NAMES else f"{_VERBS[op]}_{asked}"


def _description(operation: Mapping[str, Any], table: Mapping[str, Any] | None) -> str:
    op = operation["op"]
    names = list(operation["arguments"])
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
    return f"{verb} the {asked} of {_article(names[0])}{extra}."


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


def _parameter_type(
    operation: Mapping[str, Any], table: Mapping[str, Any] | None, name: str
) -> str:
    if operation["op"] in WRITE_OPS:
        return stateful_code.parameter_type(operation["arguments"][name])
    if name in _FIXED_TYPES and operation["op"] in {*_WHOLE_NAMES, "above", "below"} - {"check"}:
        return _FIXED_TYPES[name]
    return _column_type(table, name)


def _column_type(table: Mapping[str, Any] | None, column: str) -> str:
    if table is None or column not in table["columns"]:
        raise ProviderError(f"no column {column!r} in the table of the operation")
    position = table["columns"].index(column)
    kinds = {type(row[position]) for row in table["rows"]}
    if kinds <= {bool}:
        return "boolean"
    if kinds <= {int}:
        return "integer"
    return "number" if kinds <= {int, float} else "string"


def _output(
    operation: Mapping[str, Any], table: Mapping[str, Any] | None, answer_type: str
) -> dict[str, Any]:
    match operation["op"]:
        case "count" | "days_between":
            return {"type": "integer"}
        case "check":
            return {"type": "boolean"}
        case "weekday":
            return {"type": "string"}
        case "record":
            columns: list[str] = operation["select"].split(":")
            kinds = {name: {"type": _column_type(table, name)} for name in columns}
            return {"type": "object", "properties": kinds, "required": columns}
        case "sum" | "mean" | "max" | "min" | "convert" | "multiply":
            return {"type": "number"}
        case "add_days":
            return {"type": "string", "format": "date"}
        case "insert" | "update" | "delete" if not operation["select"]:
            return {"type": "boolean"}
        case op:
            kind = {"type": _column_type(table, operation["select"].split(":")[0])}
            if op in ("list", "above", "below", "sort"):
                return {"type": "array", "items": kind}
            return {**kind, "format": "date"} if answer_type == "date" else kind


def _free_column(operation: Mapping[str, Any], table: Mapping[str, Any] | None) -> str | None:
    """A one-word column that is neither the table's key nor used by the operation."""
    if table is None:
        return None
    used = {*operation["arguments"], *operation["select"].split(":"), table["columns"][0]}
    asked = operation["relation"].split(".")[1]
    for column in table["columns"]:
        if column not in used and "_" not in column and column not in asked:
            return column
    return None
