"""Checks of a generated tool before it runs: its document, its gold call and its code."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any

from astra.envsynth.leaks import Secrets, told_by_document
from astra.envsynth.truth import column_named
from astra.records.base import canonical_json
from astra.records.tool import Tool
from astra.sandbox.imports import forbidden_imports
from astra.text.schemas import schema_fault, violation
from astra.text.source import parsed

MAX_CODE_CHARS = 100_000
MAX_PARAMETERS = 6
_NAME = re.compile(r"[a-z][a-z0-9_]{1,63}")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_CHANCE_MODULES = frozenset({"random", "time", "uuid"})
_CLOCKS = frozenset({"now", "today", "utcnow"})
_ADDRESSES = frozenset({"id", "hash"})
_PLACE = re.compile(r" at 0x[0-9a-f]{6,}")
Problem = tuple[str, str]
"""A reason code that metrics count by, and the detail that goes back to the teacher."""


def steady(problem: Problem) -> Problem:
    """The problem without addresses of objects, which differ from run to run."""
    return problem[0], _PLACE.sub("", problem[1])


def recorded(problem: Problem) -> str:
    """The detail as a rejection keeps it; of what befell the machine only the kind is kept."""
    return "" if problem[0] == "sandbox_infra" else problem[1]


def document_problem(
    tool: Tool, secrets: Secrets, filters: Collection[str] | None
) -> Problem | None:
    """Why the document is no usable function schema, or tells what an agent has to find out.

    ``filters``: the names that optional parameters can have; None where any will do.
    """
    if not _NAME.fullmatch(tool.name):
        return "bad_name", f"tool name {tool.name!r} is not snake_case"
    if not tool.description.strip():
        return "no_description", "the tool has no description"
    schemas = [tool.parameters] + ([tool.output_schema] if tool.output_schema else [])
    for schema in schemas:
        fault = _fault(canonical_json(schema))
        if fault:
            return "bad_schema", fault
    properties = tool.parameters.get("properties", {})
    if tool.parameters.get("type") != "object" or not isinstance(properties, dict):
        return "bad_schema", "parameters must be an object schema with properties"
    unusable = [name for name in properties if not _IDENTIFIER.fullmatch(name)]
    if unusable or not set(tool.parameters.get("required", ())) <= set(properties):
        return "bad_schema", f"parameter names {unusable or 'in required'} are not usable"
    told = told_by_document(tool, secrets)
    if told is not None:
        return "answer_in_document", f"the document states {told!r}: it may name no such value"
    return _parameters_problem(properties, tool.parameters.get("required", ()), filters)


def _parameters_problem(
    properties: Mapping[str, Any], required: Collection[str], filters: Collection[str] | None
) -> Problem | None:
    """Why parameters do more than pass a value or filter rows by a column that there is."""
    if len(properties) > MAX_PARAMETERS:
        return "bad_schema", f"{len(properties)} parameters, at most {MAX_PARAMETERS}"
    for name, schema in properties.items():
        if isinstance(schema, dict) and "default" in schema:
            return "default_in_document", f"parameter {name} has a default"
        if name not in required and filters is not None and not column_named(name, filters):
            return "unknown_filter", f"optional parameter {name} is no column: {sorted(filters)}"
    return None


def call_problem(tool: Tool, arguments: Mapping[str, Any]) -> Problem | None:
    """Why the gold arguments do not satisfy the document."""
    fault = violation(dict(arguments), tool.parameters)
    return ("call_violates_schema", fault) if fault else None


# Documents of one relation are equal across instances, and checking a schema is slow.
@lru_cache(maxsize=4096)
def _fault(schema: str) -> str:
    return schema_fault(json.loads(schema))


def code_problem(
    tool: Tool, code: str, allowed: Collection[str], stateful: bool = False
) -> Problem | None:
    """Why the source cannot be used: it must parse, import only what is allowed, use neither clock
    nor chance, and have the schema's signature. A stateful tool's first parameter is ``world``.
    """
    if len(code) > MAX_CODE_CHARS:
        return "code_too_long", f"{len(code)} characters, at most {MAX_CODE_CHARS}"
    try:
        tree = parsed(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return "syntax_error", str(error)[:200]
    forbidden = forbidden_imports(tree, allowed)
    if forbidden:
        return "forbidden_import", f"imports {', '.join(forbidden)}"
    drawn = sorted(set(_chance(tree)))
    if drawn:
        return (
            "clock_or_chance",
            f"uses {', '.join(drawn)}: results must not vary by time or chance",
        )
    functions = [
        statement
        for statement in tree.body
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
        and statement.name == tool.name
    ]
    if len(functions) != 1 or isinstance(functions[0], ast.AsyncFunctionDef):
        return "no_function", f"define exactly one plain function named {tool.name}"
    return _signature_problem(functions[0], tool, stateful)


def _chance(tree: ast.AST) -> Iterator[str]:
    """Names by which the source reaches for chance, the clock or an object's address."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in _CHANCE_MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in _CHANCE_MODULES:
            yield node.module
        elif isinstance(node, ast.Attribute) and node.attr in _CLOCKS:
            yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield from {node.func.id} & _ADDRESSES


def _signature_problem(function: ast.FunctionDef, tool: Tool, stateful: bool) -> Problem | None:
    spec = function.args
    if spec.vararg or spec.kwarg or spec.posonlyargs or function.decorator_list:
        return "signature_mismatch", "use plain named parameters and no decorators"
    if stateful and (not spec.args or spec.args[0].arg != "world"):
        return "signature_mismatch", "the first parameter of a stateful tool is world"
    optional = {argument.arg for argument in spec.args[len(spec.args) - len(spec.defaults) :]}
    optional |= {
        argument.arg
        for argument, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
        if default is not None
    }
    own = spec.args[1:] if stateful else spec.args
    names = {argument.arg for argument in [*own, *spec.kwonlyargs]}
    properties = set(tool.parameters.get("properties", {}))
    required = set(tool.parameters.get("required", ()))
    if names != properties:
        return "signature_mismatch", f"parameters {sorted(names)}, schema {sorted(properties)}"
    if names - optional != required:
        return "signature_mismatch", f"required {sorted(names - optional)}, not {sorted(required)}"
    return None
