"""API listings with separate required and optional parameters: format ``rapidapi``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from astra.toolbank.effects import method_effect
from astra.toolbank.raw import BadDocument, RawServer, RawTool

_LISTED = re.compile(r"list of (\w+) with length \d+")
_TYPES: dict[str, dict[str, Any]] = {
    "str": {"type": "string"}, "int": {"type": "integer"}, "float": {"type": "number"},
    "bool": {"type": "boolean"}, "list": {"type": "array"}, "dict": {"type": "object"},
    "empty list": {"type": "array"},
}  # fmt: skip
_LENGTH = "_list_length"
"""What a recorded shape adds to the first object of a list."""
_COMPLAINTS = frozenset(
    ("message", "messages", "error", "errors", "detail", "info", "code", "status", "statusCode",
     "success", "timestamp", "path", "stack")
)  # fmt: skip
"""Where a recorded answer has no other keys, the service had refused the call."""


def parse(document: Any, base: RawServer) -> Iterator[RawServer]:
    """One server per service that the APIs name. Raises BadDocument for anything else."""
    if isinstance(document, dict):
        title = document.get("tool_name") or document.get("title") or base.name
        base = base.described({"description": document.get("tool_description")})
        apis = document.get("api_list", [])
        if isinstance(apis, list):
            apis = [{"tool_name": title, **api} for api in apis if isinstance(api, dict)]
        document = apis
    if not isinstance(document, list):
        raise BadDocument("expected a list of APIs or an object with `api_list`")
    groups: dict[str, list[dict[str, Any]]] = {}
    for api in document:
        if isinstance(api, dict):
            groups.setdefault(str(api.get("tool_name") or base.name), []).append(api)
    for name, apis in groups.items():
        category = apis[0].get("category_name") or apis[0].get("category") or ""
        yield replace(
            base.described({"domain": category, "title": name}),
            name=name,
            source=f"{base.source}#{name}" if len(groups) > 1 else base.source,
            tools=tuple(_tool(api) for api in apis),
        )


def _tool(api: dict[str, Any]) -> RawTool:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for key in ("required_parameters", "optional_parameters"):
        listed = api.get(key)
        for parameter in listed if isinstance(listed, list) else []:
            if not isinstance(parameter, dict) or not isinstance(parameter.get("name"), str):
                continue
            name = parameter["name"]
            properties[name] = {
                field: parameter[field]
                for field in ("type", "description", "default", "enum", "example")
                if parameter.get(field) not in (None, "")
            }
            if key == "required_parameters":
                required.append(name)
    name = api.get("api_name", api.get("name"))
    description = api.get("api_description", api.get("description"))
    return RawTool(
        name=name,
        description=description,
        parameters={"type": "object", "properties": properties, "required": required},
        output=_recorded(api.get("template_response")),
        effect=method_effect(api.get("method"), name, api.get("url"), description),
    )


def _recorded(template: Any) -> dict[str, Any] | None:
    """The schema of a recorded answer, whose values stand for their Python types.

    None where none was recorded, it was cut off (then it is a string), or the service refused.
    """
    if not isinstance(template, dict) or template.keys() <= _COMPLAINTS:
        return None
    return _shape(template)


def _shape(node: Any) -> dict[str, Any]:
    if isinstance(node, dict):
        properties = {key: _shape(item) for key, item in node.items() if key != _LENGTH}
        return {"type": "object", "properties": properties}
    if isinstance(node, list) and len(node) == 1:
        listed = _LISTED.fullmatch(node[0]) if isinstance(node[0], str) else None
        items = _TYPES.get(listed[1], {}) if listed else _shape(node[0])
        return {"type": "array", "items": dict(items)}
    return dict(_TYPES.get(node, {})) if isinstance(node, str) else {}
