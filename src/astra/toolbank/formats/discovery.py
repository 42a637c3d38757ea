"""Google's API discovery documents, one tool per method: format ``discovery``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from astra.text.inline import Inliner, add_body
from astra.toolbank.effects import method_effect
from astra.toolbank.raw import BadDocument, RawServer, RawTool

KIND = "discovery#restDescription"
_KEPT = ("type", "description", "enum", "default", "pattern", "minimum", "maximum", "format")


def parse(document: Any, base: RawServer) -> Iterator[RawServer]:
    """The document's one server. Raises BadDocument if it describes no API."""
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise BadDocument(f"`kind` is not {KIND}")
    name, version = document.get("name"), document.get("version")
    if not isinstance(name, str) or not isinstance(version, str):
        raise BadDocument("no texts `name` and `version`")
    schemas = document.get("schemas")
    pool = {"schemas": _linked(schemas) if isinstance(schemas, dict) else {}}
    tools = tuple(_tool(method, name, pool) for method in _methods(document))
    yield replace(base.described(document), name=f"{name}-{version}", tools=tools)


def _methods(node: Any) -> Iterator[dict[str, Any]]:
    """The methods of an API or resource, then those of the resources below it."""
    for key in ("methods", "resources"):
        listed = node.get(key)
        for item in listed.values() if isinstance(listed, dict) else ():
            if isinstance(item, dict):
                yield from [item] if key == "methods" else _methods(item)


def _linked(node: Any) -> Any:
    """``node`` with the bare names of schemas as pointers, which ``Inliner`` follows."""
    if isinstance(node, list):
        return [_linked(item) for item in node]
    if not isinstance(node, dict):
        return node
    linked = {key: _linked(item) for key, item in node.items()}
    if isinstance(node.get("$ref"), str):
        linked["$ref"] = f"#/schemas/{node['$ref']}"
    return linked


def _tool(method: dict[str, Any], api: str, pool: dict[str, Any]) -> RawTool:
    inline = Inliner(pool)
    listed = method.get("parameters")
    parameters = listed if isinstance(listed, dict) else {}
    stated = {name: item for name, item in parameters.items() if isinstance(item, dict)}
    properties = {name: _parameter(item) for name, item in stated.items()}
    required = [name for name, item in stated.items() if item.get("required") is True]
    add_body(inline(_linked(method.get("request"))), None, properties, required)
    name = method.get("id")
    if isinstance(name, str):
        name = name.removeprefix(f"{api}.")
    path = method.get("flatPath") or method.get("path")
    description = method.get("description")
    return RawTool(
        name=name,
        description=description,
        parameters={"type": "object", "properties": properties, "required": required},
        output=inline(_linked(method.get("response"))),
        notes=tuple(inline.notes),
        effect=method_effect(method.get("httpMethod"), name, path, description),
    )


def _parameter(item: dict[str, Any]) -> dict[str, Any]:
    schema = {key: item[key] for key in _KEPT if key in item}
    if item.get("repeated") is not True:
        return schema
    described = {"description": schema.pop("description")} if "description" in schema else {}
    return {"type": "array", "items": schema, **described}
