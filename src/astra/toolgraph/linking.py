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
from astra.text.paths import alternatives, kinds, takes
from astra.text.values import ENTITY
from astra.text.verbs import singular

_GENERIC_NAMES = (
    "id name type query value text data result results status date month year day time count "
    "number page limit offset size key path url content message format mode sort order"
)
_GENERIC = frozenset(_GENERIC_NAMES.split())
_SCALARS = {"string", "integer", "number"}
MAX_DEPTH = 7
"""How many levels of a result are looked at; lists count."""
MAX_OUTPUTS = 400
"""How many values of one result are looked at: some publishers describe thousands."""
_TOKEN = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


@dataclass(frozen=True)
class Output:
    """A value inside a tool's result: ``path`` into the JSON result, its name and schema."""

    path: tuple[str | int, ...]
    name: str
    schema: Mapping[str, Any]


def tokens(name: str) -> tuple[str, ...]:
    """Lower-case singular words of a snake_case, camelCase or dotted name."""
    return tuple(singular(part.lower()) for part in _TOKEN.findall(name))


def outputs(tool: Tool) -> tuple[Output, ...]:
    """The scalars that a tool's result promises, the shallow ones first; at most ``MAX_OUTPUTS``.

    Of a list the first element stands for all. A result that nobody described promises nothing.
    """
    schema = tool.result_schema
    if schema is None:
        return ()
    own = schema.get("title") or "_".join(tokens(tool.name)[1:]) or tool.name
    found: list[Output] = []
    level = [Output((), str(own), schema)]
    for _ in range(MAX_DEPTH):
        inner: list[Output] = []
        for place in level:
            for plain in alternatives(place.schema, schema):
                if kinds(plain) & _SCALARS:
                    found.append(Output(place.path, place.name, plain))
                inner += _parts(place, plain)
        level = inner[:MAX_OUTPUTS]
    return tuple(found[:MAX_OUTPUTS])


def _parts(place: Output, schema: Mapping[str, Any]) -> list[Output]:
    """What a list or an object at ``place`` holds, one step further down."""
    if "array" in kinds(schema) and isinstance(schema.get("items"), Mapping):
        return [Output((*place.path, 0), place.name, schema["items"])]
    properties = schema.get("properties") or {}
    return [
        Output((*place.path, key), key, properties[key])
        for key in schema.get("required") or properties
        if isinstance(properties.get(key), Mapping)
    ]


def feeds(output: Output, tool: Tool, parameter: str, schema: Mapping[str, Any]) -> bool:
    """Whether ``output`` (of ``tool``) can be the value of ``parameter`` with ``schema``."""
    wanted, given = kinds(schema), kinds(output.schema)
    if not wanted & given and not ("number" in wanted and "integer" in given):
        return False
    if not takes(schema, tool.parameters, [output.schema], tool.result_schema):
        return False
    if output.schema.get(ENTITY) != schema.get(ENTITY):
        return False
    if output.name in parameters(tool):
        return False  # The result repeats what the call said: whoever knew it then knows it now.
    source, target = tokens(output.name), tokens(parameter)
    if source == target:
        return not set(target) <= _GENERIC
    # Output ``id`` of create_user is what parameter user_id names.
    return len(target) > 1 and target == (*tokens(tool.name)[1:], *source)


def parameters(tool: Tool) -> dict[str, Mapping[str, Any]]:
    """Every parameter that a call may give, in the schema's order."""
    properties = tool.parameters.get("properties", {})
    return {
        name: schema if isinstance(schema, Mapping) else {} for name, schema in properties.items()
    }


def required_parameters(tool: Tool) -> dict[str, Mapping[str, Any]]:
    """Parameters that a call must give, in the order in which the schema requires them."""
    known = parameters(tool)
    return {name: known[name] for name in tool.parameters.get("required", ()) if name in known}


def linked(producer: Tool, consumer: Tool) -> bool:
    """Whether some output of ``producer`` can be a required parameter of ``consumer``.

    A producer whose result nobody described is judged by its name: ``list_tables`` leads to a
    parameter ``table_name``.
    """
    needed = required_parameters(consumer)
    if any(
        feeds(output, producer, name, schema)
        for output in outputs(producer)
        for name, schema in needed.items()
    ):
        return True
    product = tokens(producer.name)[1:]
    return (
        producer.result_schema is None
        and bool(product)
        and any(tokens(name)[: len(product)] == product for name in needed)
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
