"""API listings with separate required and optional parameters: format ``rapidapi``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from astra.toolbank.raw import BadDocument, RawServer, RawTool


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
    return RawTool(
        name=api.get("api_name", api.get("name")),
        description=api.get("api_description", api.get("description")),
        parameters={"type": "object", "properties": properties, "required": required},
    )
