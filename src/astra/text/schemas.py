"""Whether a value satisfies a JSON Schema (2020-12), and how it does not.

Whoever checks a value against a schema does it here: a schema never makes the host fetch what it
refers to, a schema is compiled once, and what is wrong is told in a bounded text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from referencing import Registry
from referencing.exceptions import Unresolvable

from astra.records.base import canonical_json

_DEFINITIONS = ("$defs", "definitions")
MAX_TOLD = 300
"""The most characters of a problem that are told: messages quote whole values."""


def violation(value: Any, schema: Any) -> str:
    """How ``value`` violates the valid schema ``schema``; empty if it does not.

    A schema whose references do not resolve is violated by every value that meets them.
    """
    return _violation(value, schema, schema)


def parameter_violation(value: Any, parameters: Mapping[str, Any], name: str) -> str:
    """How ``value`` violates the schema of one of a call's ``parameters``; empty if it does not.

    References point into the whole of ``parameters``: some to another parameter, or to the root.
    """
    return _violation(value, parameters.get("properties", {}).get(name, {}), parameters)


def _violation(value: Any, schema: Any, root: Any) -> str:
    try:
        problem = best_match(validator_within(root, schema).iter_errors(value))
    except (Unresolvable, RecursionError) as error:
        return f"the schema cannot be resolved: {error}"[:MAX_TOLD]
    if problem is None:
        return ""
    place = "/".join(map(str, problem.absolute_path))
    return f"{place and f'{place}: '}{problem.message}"[:MAX_TOLD]


def conforms(value: Any, schema: Any) -> bool:
    """Whether ``violation`` finds nothing, without looking for words."""
    try:
        return validator(schema).is_valid(value)
    except (Unresolvable, RecursionError):
        return False


def schema_fault(schema: Any) -> str:
    """What keeps ``schema`` from being a JSON Schema; empty if nothing does."""
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        place = "/".join(map(str, error.absolute_path))
        return f"{place and f'{place}: '}{error.message}"[:MAX_TOLD]
    except RecursionError:
        return "nested too deep"
    return ""


def parameter_schema(parameters: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The schema of one of a call's ``parameters``, to be read, with the definitions it points to.

    One that is another parameter's has that one's keywords. An unknown parameter has an empty one,
    which every value satisfies. Whether a value does is for ``parameter_violation`` to say.
    """
    properties = parameters.get("properties", {})
    schema = properties.get(name, {})
    if not isinstance(schema, Mapping):
        return {"not": {}} if schema is False else {}
    if "$ref" not in canonical_json(schema):
        return schema
    prefix, pointer = "#/properties/", str(schema.get("$ref", ""))
    other = pointer.removeprefix(prefix).replace("~1", "/").replace("~0", "~")
    target = properties.get(other) if pointer.startswith(prefix) else None
    if isinstance(target, Mapping):
        schema = {**target, **{key: part for key, part in schema.items() if key != "$ref"}}
    return {**schema, **{key: parameters[key] for key in _DEFINITIONS if key in parameters}}


def schema_at(schema: Mapping[str, Any], path: Sequence[Any]) -> Mapping[str, Any]:
    """The schema of the value at a path: names and places; an empty one where none is stated."""
    for step in path:
        inner = schema.get("properties", {}).get(step) if isinstance(step, str) else None
        schema = inner if inner is not None else schema.get("items", {})
        if not isinstance(schema, Mapping):
            return {}
    return schema


def descriptions_of(schema: Any) -> Iterator[str]:
    """The texts by which a schema describes its values, at any depth."""
    if isinstance(schema, list):
        for inner in schema:
            yield from descriptions_of(inner)
    elif isinstance(schema, Mapping):
        for key, inner in schema.items():
            if key == "description" and isinstance(inner, str):
                yield inner
            yield from descriptions_of(inner)


def validator(schema: Any) -> Draft202012Validator:
    """The compiled form of a valid schema, for callers that tell unresolvable references apart."""
    return _compiled(canonical_json(schema))


def validator_within(root: Any, schema: Any) -> Draft202012Validator:
    """The compiled form of a part of the valid schema ``root``, into which its references point."""
    part: Any = validator(root).evolve(schema=schema)
    return part


@lru_cache(maxsize=4096)
def _compiled(schema: str) -> Draft202012Validator:
    # An empty registry: a remote $ref must never make the host fetch it.
    return Draft202012Validator(json.loads(schema), registry=Registry())
