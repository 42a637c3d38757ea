"""What the schemas of an OpenAPI document say of rows and their cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from astra.records.world import ColumnType
from astra.text.inline import Inliner
from astra.text.openapi import ApiOperation
from astra.text.verbs import singular, words_of

Schema = dict[str, Any]
_SHAPES: dict[str, type | tuple[type, ...]] = {
    "properties": dict, "required": list, "enum": list, "allOf": list, "anyOf": list,
    "oneOf": list, "minimum": (int, float), "maximum": (int, float), "description": str,
}  # fmt: skip
"""What keywords hold; one that holds something else says nothing."""


def snake(name: str) -> str:
    """A name as tables, columns and arguments of worlds are written."""
    return "_".join(words_of(name))


def one_of(table: str) -> str:
    """What one row of a table is called."""
    *first, last = table.split("_")
    return "_".join([*first, singular(last)])


def flat(schema: Any) -> Schema:
    """A schema with what ``allOf`` adds, and with ``nullable`` where null is one of its types."""
    if not isinstance(schema, dict):
        return {}
    given = {name: part for name, part in cast("Schema", schema).items()
             if isinstance(part, _SHAPES.get(name, object))}  # fmt: skip
    choices = given.get("anyOf") or given.get("oneOf")
    if isinstance(choices, list):
        real = [one for one in map(flat, cast("list[Any]", choices)) if one.get("type") != "null"]
        if len(real) != 1:
            return given
        rest = {k: v for k, v in given.items() if k not in ("anyOf", "oneOf")}
        return {**real[0], **rest, "nullable": len(cast("list[Any]", choices)) > 1}
    merged: Schema = {}
    own = {name: part for name, part in given.items() if name != "allOf"}
    for part in [*map(flat, given.get("allOf") or ()), own]:
        properties = {**merged.get("properties", {}), **(part.get("properties") or {})}
        required = [*merged.get("required", ()), *(part.get("required") or ())]
        merged = {**merged, **part}
        if properties:
            merged |= {"properties": properties, "required": required}
    if isinstance(merged.get("type"), list):
        types = [one for one in merged["type"] if one != "null"]
        merged |= {"type": types[0] if len(types) == 1 else types,
                   "nullable": len(types) < len(merged["type"])}  # fmt: skip
    return merged


def record(schema: Any) -> Schema:
    """The schema of the rows that an answer holds: itself, its items, or those of its only list of
    objects; empty where it has none."""
    found = flat(schema)
    if found.get("type") == "array":
        return record(found.get("items"))
    properties = found.get("properties")
    if not isinstance(properties, dict):
        return {}
    lists = [part for part in map(flat, cast("Schema", properties).values())
             if part.get("type") == "array" and record(part)]  # fmt: skip
    return record(lists[0]) if len(lists) == 1 and not _names_a_row(properties) else found


def _names_a_row(properties: Mapping[str, Any]) -> bool:
    return any(name == "id" or snake(name).endswith("_id") for name in properties)


def row_schema(table: str, document: Any, shown: Sequence[ApiOperation]) -> Schema:
    """The schema of a table's rows: what the component of its name and the answers of ``shown``
    say, the first that says something of a cell."""
    merged: Schema = {"properties": {}, "required": []}
    for schema in (*_components(table, document), *(record(one.response) for one in shown)):
        properties = schema.get("properties") or {}
        new = [name for name in properties if name not in merged["properties"]]
        merged["properties"] |= {name: flat(properties[name]) for name in new}
        merged["required"] += [name for name in new if name in (schema.get("required") or ())]
    return merged


def _components(table: str, document: Mapping[str, Any]) -> Iterator[Schema]:
    components = document.get("components")
    kept = cast("Schema", components).get("schemas") if isinstance(components, dict) else None
    schemas = kept or document.get("definitions")
    for name, schema in cast("Schema", schemas).items() if isinstance(schemas, dict) else ():
        if snake(str(name)) in (table, one_of(table)):
            yield flat(Inliner(document)(schema))


def column_type(schema: Mapping[str, Any]) -> ColumnType | None:
    """What a cell of a schema holds; None where nobody can tell."""
    if isinstance(schema.get("enum"), list):
        return ColumnType.ENUM
    match schema.get("type"):
        case "string":
            return ColumnType.DATE if schema.get("format") == "date" else ColumnType.STRING
        case "integer":
            return ColumnType.INTEGER
        case "number":
            return ColumnType.NUMBER
        case "boolean":
            return ColumnType.BOOLEAN
        case "array" | "object":
            return ColumnType.JSON
        case _:
            return None
