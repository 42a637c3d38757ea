"""Service models of AWS as botocore ships them, one tool per operation: format ``aws``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

from astra.text.inline import Inliner
from astra.toolbank.effects import method_effect
from astra.toolbank.raw import BadDocument, RawServer, RawTool

_TYPES: dict[str, dict[str, Any]] = {
    "string": {"type": "string"}, "character": {"type": "string"},
    "integer": {"type": "integer"}, "long": {"type": "integer"},
    "float": {"type": "number"}, "double": {"type": "number"},
    "boolean": {"type": "boolean"}, "structure": {"type": "object"},
    "list": {"type": "array"}, "map": {"type": "object"},
    "timestamp": {"type": "string", "format": "date-time"},
    "blob": {"type": "string", "contentEncoding": "base64"},
}  # fmt: skip
_BOUNDS = {
    "string": ("minLength", "maxLength"), "list": ("minItems", "maxItems"),
    "map": ("minProperties", "maxProperties"), "integer": ("minimum", "maximum"),
    "long": ("minimum", "maximum"), "float": ("minimum", "maximum"),
    "double": ("minimum", "maximum"),
}  # fmt: skip


def parse(document: Any, base: RawServer) -> Iterator[RawServer]:
    """The document's one server. Raises BadDocument if it is no service model."""
    if not isinstance(document, dict):
        raise BadDocument("expected an object")
    about, operations, shapes = (_object(document, k) for k in ("metadata", "operations", "shapes"))
    pool = {"shapes": {key: _schema(s) for key, s in shapes.items() if isinstance(s, dict)}}
    tools = [_tool(item, pool) for item in operations.values() if isinstance(item, dict)]
    described = base.described(
        {"title": about.get("serviceFullName"), "description": _text(document)}
    )
    name = about.get("serviceId")
    name = name if isinstance(name, str) and name else base.name
    yield replace(described, name=name, tools=tuple(tools))


def _object(document: dict[str, Any], key: str) -> dict[str, Any]:
    part = document.get(key)
    if not isinstance(part, dict):
        raise BadDocument(f"no object `{key}`")
    return part


def _tool(operation: dict[str, Any], pool: dict[str, Any]) -> RawTool:
    inline = Inliner(pool)
    taken = inline(_reference(operation.get("input")))
    output = operation.get("output")
    http = operation.get("http")
    http = http if isinstance(http, dict) else {}
    name, description = operation.get("name"), _text(operation)
    return RawTool(
        name=name,
        description=description,
        parameters=taken or {"type": "object", "properties": {}},
        output=inline(_reference(output)) if isinstance(output, dict) else None,
        notes=tuple(inline.notes),
        effect=method_effect(http.get("method"), name, http.get("requestUri"), description),
    )


def _schema(shape: dict[str, Any]) -> dict[str, Any]:
    """JSON Schema of one shape; other shapes stay references."""
    kind = str(shape.get("type"))
    schema = dict(_TYPES.get(kind, {}))
    for key, value in zip(
        _BOUNDS.get(kind, ()), (shape.get("min"), shape.get("max")), strict=False
    ):
        if isinstance(value, int | float):
            schema[key] = value
    schema |= {key: shape[key] for key in ("enum", "pattern") if key in shape}
    if _text(shape):
        schema["description"] = _text(shape)
    members = shape.get("members")
    if kind == "structure" and isinstance(members, dict):
        schema["properties"] = {name: _reference(member) for name, member in members.items()}
        schema["required"] = shape.get("required", [])
    elif kind == "list":
        schema["items"] = _reference(shape.get("member"))
    elif kind == "map":
        schema["additionalProperties"] = _reference(shape.get("value"))
    return schema


def _reference(member: Any) -> dict[str, Any]:
    if not isinstance(member, dict) or not isinstance(member.get("shape"), str):
        return {}
    described = {"description": _text(member)} if _text(member) else {}
    return {"$ref": f"#/shapes/{member['shape']}", **described}


def _text(node: dict[str, Any]) -> str:
    """The documentation of a node without its HTML."""
    html = node.get("documentation")
    if not isinstance(html, str):
        return ""
    plain = _Plain()
    plain.feed(html)
    plain.close()
    return " ".join("".join(plain.parts).split())


class _Plain(HTMLParser):
    """Collects the text of HTML; blocks end with a space."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.parts.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("p", "li", "dt", "dd", "note", "important"):
            self.parts.append(" ")
