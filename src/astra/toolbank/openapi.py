"""OpenAPI 3.x and Swagger 2.0 documents -> one raw server, one tool per operation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from astra.toolbank.raw import BadDocument, RawServer, RawTool

METHODS = ("get", "post", "put", "patch", "delete")
MAX_DEPTH = 6
_SCHEMA_KEYS = (
    "type", "format", "enum", "default", "minimum", "maximum", "items", "pattern",
    "minLength", "maxLength", "nullable", "example",
)  # fmt: skip


def parse_openapi(document: Any, base: RawServer) -> RawServer:
    """Raises BadDocument if it is no OpenAPI document. Leaves out cookie and header parameters."""
    if not isinstance(document, dict) or not ("openapi" in document or "swagger" in document):
        raise BadDocument("no key `openapi` or `swagger`")
    paths = document.get("paths")
    if not isinstance(paths, dict):
        raise BadDocument("no object `paths`")
    tools: list[RawTool] = []
    for path, item in paths.items():
        item = _deref(item, document, 0)
        if not isinstance(item, dict):
            continue
        for method in METHODS:
            operation = item.get(method)
            if isinstance(operation, dict):
                tools.append(_operation(str(path), method, operation, item, document))
    info = document.get("info")
    info = info if isinstance(info, dict) else {}
    licence = info.get("license")
    found = dict(info) | {"license": licence.get("name") if isinstance(licence, dict) else None}
    return replace(base.described(found), tools=tuple(tools))


def _operation(
    path: str, method: str, operation: dict[str, Any], item: dict[str, Any], document: Any
) -> RawTool:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in [*_listed(item), *_listed(operation)]:
        parameter = _deref(parameter, document, 0)
        if not isinstance(parameter, dict) or not isinstance(parameter.get("name"), str):
            continue
        place = parameter.get("in")
        if place == "body":
            _add_body(parameter.get("schema"), parameter.get("required"), properties, required)
        elif place in ("query", "path", "formData"):
            name = parameter["name"]
            properties[name] = _parameter_schema(parameter, document)
            if parameter.get("required") is True or place == "path":
                required.append(name)
    body = _deref(operation.get("requestBody"), document, 0)
    if isinstance(body, dict):
        schema = _content_schema(body)
        _add_body(_deref(schema, document, 0), body.get("required"), properties, required)
    name = operation.get("operationId") or f"{method}_{path.strip('/')}"
    return RawTool(
        name=name,
        description=operation.get("description") or operation.get("summary"),
        parameters={"type": "object", "properties": properties, "required": required},
        output=_response_schema(operation, document),
    )


def _listed(node: dict[str, Any]) -> list[Any]:
    listed = node.get("parameters")
    return listed if isinstance(listed, list) else []


def _parameter_schema(parameter: dict[str, Any], document: Any) -> Any:
    schema = _deref(parameter.get("schema"), document, 0)
    if not isinstance(schema, dict):  # Swagger 2.0 keeps the type on the parameter itself
        schema = {key: parameter[key] for key in _SCHEMA_KEYS if key in parameter}
        schema = _deref(schema, document, 0)
    described = parameter.get("description")
    return schema | ({"description": described} if isinstance(described, str) else {})


def _add_body(schema: Any, needed: Any, properties: dict[str, Any], required: list[str]) -> None:
    if not isinstance(schema, dict):
        return
    inner = schema.get("properties")
    if isinstance(inner, dict) and inner and not set(inner) & set(properties):
        properties.update(inner)
        listed = schema.get("required")
        required += listed if isinstance(listed, list) and needed is not False else []
        return
    properties["body"] = schema
    if needed is True:
        required.append("body")


def _content_schema(node: dict[str, Any]) -> Any:
    content = node.get("content")
    if not isinstance(content, dict):
        return node.get("schema")
    for kind in ("application/json", *content):
        media = content.get(kind)
        if isinstance(media, dict) and "schema" in media:
            return media["schema"]
    return None


def _response_schema(operation: dict[str, Any], document: Any) -> Any:
    responses = operation.get("responses")
    if not isinstance(responses, dict):
        return None
    for code in ("200", 200, "201", 201):
        response = _deref(responses.get(code), document, MAX_DEPTH - 1)
        if isinstance(response, dict):
            return _deref(_content_schema(response), document, 0)
    return None


def _deref(node: Any, document: Any, depth: int) -> Any:
    """``node`` with local references inlined; deeper than MAX_DEPTH (or recursive) becomes {}."""
    if isinstance(node, dict):
        pointer = node.get("$ref")
        if isinstance(pointer, str):
            target = _lookup(pointer, document) if depth < MAX_DEPTH else {}
            return _deref(target, document, depth + 1)
        if depth >= MAX_DEPTH * 3:
            return {}
        return {key: _deref(item, document, depth + 1) for key, item in node.items()}
    if isinstance(node, list):
        return [_deref(item, document, depth + 1) for item in node] if depth < MAX_DEPTH * 3 else []
    return node


def _lookup(pointer: str, document: Any) -> Any:
    if not pointer.startswith("#/"):
        return {}
    node = document
    for part in pointer[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, dict) or key not in node:
            return {}
        node = node[key]
    return node
