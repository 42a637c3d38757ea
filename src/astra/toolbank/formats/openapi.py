"""OpenAPI 3.x and Swagger 2.0 documents, one tool per operation: format ``openapi``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from astra.toolbank.effects import method_effect
from astra.toolbank.inline import Inliner, add_body, resolved
from astra.toolbank.raw import BadDocument, RawServer, RawTool

METHODS = ("get", "post", "put", "patch", "delete")
_SCHEMA_KEYS = (
    "type", "format", "enum", "default", "minimum", "maximum", "items", "pattern",
    "minLength", "maxLength", "nullable", "example",
)  # fmt: skip


def parse(document: Any, base: RawServer) -> Iterator[RawServer]:
    """The document's one server; cookie and header parameters of its tools are left out.

    Raises BadDocument if it is no OpenAPI document.
    """
    if not isinstance(document, dict) or not ("openapi" in document or "swagger" in document):
        raise BadDocument("no key `openapi` or `swagger`")
    paths = document.get("paths")
    if not isinstance(paths, dict):
        raise BadDocument("no object `paths`")
    tools: list[RawTool] = []
    for path, item in paths.items():
        if isinstance(item, dict) and isinstance(item.get("$ref"), str):
            item = resolved(item["$ref"], document)
        if not isinstance(item, dict):
            continue
        for method in METHODS:
            operation = item.get(method)
            if isinstance(operation, dict):
                tools.append(_operation(str(path), method, operation, item, document))
    info = document.get("info")
    info = info if isinstance(info, dict) else {}
    licence = info.get("license")
    about = dict(info) | {"license": licence.get("name") if isinstance(licence, dict) else None}
    yield replace(base.described(about), tools=tuple(tools))


def _operation(
    path: str, method: str, operation: dict[str, Any], item: dict[str, Any], document: Any
) -> RawTool:
    inline = Inliner(document)
    properties: dict[str, Any] = {}
    required: list[str] = []
    left_out: list[str] = []
    for parameter in [*_listed(item), *_listed(operation)]:
        parameter = inline(parameter)
        if not isinstance(parameter, dict) or not isinstance(parameter.get("name"), str):
            continue
        place, name = parameter.get("in"), parameter["name"]
        if place == "body":
            add_body(parameter.get("schema"), parameter.get("required"), properties, required)
        elif place in ("query", "path", "formData"):
            properties[name] = _parameter_schema(parameter)
            if parameter.get("required") is True or place == "path":
                required.append(name)
        else:
            left_out.append(f"{place} parameter {name[:64]!r} left out")
    body = inline(operation.get("requestBody"))
    if isinstance(body, dict):
        add_body(_content_schema(body), body.get("required"), properties, required)
    output = _response_schema(operation, inline)
    name = operation.get("operationId") or f"{method}_{path.strip('/')}"
    description = operation.get("description") or operation.get("summary")
    return RawTool(
        name=name,
        description=description,
        parameters={"type": "object", "properties": properties, "required": required},
        output=output,
        notes=(*left_out, *inline.notes),
        effect=method_effect(method, name, path, operation.get("summary") or description),
    )


def _listed(node: dict[str, Any]) -> list[Any]:
    listed = node.get("parameters")
    return listed if isinstance(listed, list) else []


def _parameter_schema(parameter: dict[str, Any]) -> Any:
    schema = parameter.get("schema")
    content = parameter.get("content")
    if not isinstance(schema, dict) and isinstance(content, dict):
        schema = _content_schema(parameter)
    if not isinstance(schema, dict):  # Swagger 2.0 keeps the type on the parameter itself
        schema = {key: parameter[key] for key in _SCHEMA_KEYS if key in parameter}
    described = parameter.get("description")
    return schema | ({"description": described} if isinstance(described, str) else {})


def _content_schema(node: dict[str, Any]) -> Any:
    content = node.get("content")
    if not isinstance(content, dict):
        return node.get("schema")
    for kind in ("application/json", *content):
        media = content.get(kind)
        if isinstance(media, dict) and "schema" in media:
            return media["schema"]
    return None


def _response_schema(operation: dict[str, Any], inline: Inliner) -> Any:
    responses = operation.get("responses")
    if not isinstance(responses, dict):
        return None
    for code in ("200", 200, "201", 201):
        response = responses.get(code)
        if isinstance(response, dict):
            if isinstance(response.get("$ref"), str):
                response = resolved(response["$ref"], inline.document)
            return inline(_content_schema(response)) if isinstance(response, dict) else None
    return None
