"""Producer-consumer inference: which output of a tool can be a parameter of another.

Marked schemas (``x-entity``) link by entity type; unmarked ones by names and types, as far as
names are telling: ``id`` links to nothing, ``user_id`` to ``id`` of ``create_user``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from astra.records.tool import Tool
from astra.text.values import ENTITY

_GENERIC_NAMES = (
    "id name type query value text data result results status date month year day time count "
    "number page limit offset size key path url content message format mode sort order"
)
_GENERIC = frozenset(_GENERIC_NAMES.split())
_TOKEN = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


@dataclass(frozen=True)
class Output:
    """A value inside a tool's result: ``path`` into the JSON result, its name and schema."""

    path: tuple[str | int, ...]
    name: str
    schema: Mapping[str, Any]


def tokens(name: str) -> tuple[str, ...]:
    """Lower-case singular words of a snake_case, camelCase or dotted name."""
    return tuple(_singular(part.lower()) for part in _TOKEN.findall(name))


def _singular(word: str) -> str:
    if len(word) > 3 and word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def outputs(tool: Tool) -> tuple[Output, ...]:
    """The scalars of a tool's result that its output schema promises (two levels deep)."""
    if tool.output_schema is None:
        return ()
    own = tool.output_schema.get("title") or "_".join(tokens(tool.name)[1:]) or tool.name
    return tuple(_walk(tool.output_schema, (), str(own), 0))


def _walk(
    schema: Mapping[str, Any], path: tuple[str | int, ...], name: str, depth: int
) -> list[Output]:
    kind = schema.get("type")
    if kind == "object" and depth < 2:
        parts: list[Output] = []
        properties = schema.get("properties", {})
        for key in schema.get("required") or list(properties):
            inner = properties.get(key)
            if isinstance(inner, Mapping):
                parts += _walk(inner, (*path, key), key, depth + 1)
        return parts
    if kind == "array" and isinstance(schema.get("items"), Mapping) and depth < 2:
        return _walk(schema["items"], (*path, 0), name, depth + 1)
    return [Output(path, name, schema)] if kind in ("string", "integer", "number") else []


def feeds(output: Output, tool: Tool, parameter: str, schema: Mapping[str, Any]) -> bool:
    """Whether ``output`` (of ``tool``) can be the value of ``parameter`` with ``schema``."""
    wanted = schema.get("type")
    given = output.schema.get("type")
    if wanted != given and not (wanted == "number" and given == "integer"):
        return False
    if output.schema.get(ENTITY) != schema.get(ENTITY):
        return False
    source, target = tokens(output.name), tokens(parameter)
    if source == target:
        return not set(target) <= _GENERIC
    # Output ``id`` of create_user is what parameter user_id names.
    return len(target) > 1 and target == (*tokens(tool.name)[1:], *source)


def required_parameters(tool: Tool) -> dict[str, Mapping[str, Any]]:
    """Parameters that a call must give, in the schema's order."""
    properties = tool.parameters.get("properties", {})
    return {
        name: properties[name] if isinstance(properties[name], Mapping) else {}
        for name in tool.parameters.get("required", ())
        if name in properties
    }


def linked(producer: Tool, consumer: Tool) -> bool:
    """Whether some output of ``producer`` can be a required parameter of ``consumer``.

    A producer without an output schema is judged by its name: ``list_tables`` leads to a
    parameter ``table_name``.
    """
    parameters = required_parameters(consumer)
    if any(
        feeds(output, producer, name, schema)
        for output in outputs(producer)
        for name, schema in parameters.items()
    ):
        return True
    product = tokens(producer.name)[1:]
    return (
        producer.output_schema is None
        and bool(product)
        and any(tokens(name)[: len(product)] == product for name in parameters)
    )


def share_subject(left: Tool, right: Tool) -> bool:
    """Whether two tools ask about the same thing: a required parameter of equal name and type."""
    first, second = required_parameters(left), required_parameters(right)
    return any(
        name not in _GENERIC
        and first[name].get("type") == second[name].get("type") == "string"
        and first[name].get(ENTITY) == second[name].get(ENTITY)
        for name in first
        if name in second
    )
