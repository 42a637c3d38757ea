"""The operations of OpenAPI 3.x and Swagger 2.0 documents, with their references inlined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from astra.text.inline import Inliner, resolved

METHODS = ("get", "post", "put", "patch", "delete")
_SCHEMA_KEYS = (
    "type", "format", "enum", "default", "minimum", "maximum", "items", "pattern",
    "minLength", "maxLength", "nullable", "example",
)  # fmt: skip


@dataclass(frozen=True)
class ApiParameter:
    """A parameter of an operation, or its body as one whose place is ``body``."""

    name: str
    place: Any
    """``query``, ``path``, ``formData``, ``body``; others are as the document has them."""
    schema: Any
    """None for a body without one."""
    required: Any
    """What the document says, whatever that is."""


@dataclass(frozen=True)
class ApiOperation:
    """One method of one path."""

    path: str
    method: str
    name: Any
    """``operationId``, else made of method and path."""
    summary: Any
    description: Any
    parameters: tuple[ApiParameter, ...]
    response: Any
    """The schema of the answer to a call that succeeds; None where there is none."""
    notes: tuple[str, ...]
    """What of a schema could not be inlined."""


class NotOpenApi(ValueError):
    """A document that has no operations to read; the message says what it lacks."""


def operations(document: Any) -> Iterator[ApiOperation]:
    """All operations in the order of the document. Raises NotOpenApi, before the first."""
    if not isinstance(document, dict) or not ("openapi" in document or "swagger" in document):
        raise NotOpenApi("no key `openapi` or `swagger`")
    paths = document.get("paths")
    if not isinstance(paths, dict):
        raise NotOpenApi("no object `paths`")
    for path, item in paths.items():
        if isinstance(item, dict) and isinstance(item.get("$ref"), str):
            item = resolved(item["$ref"], document)
        if not isinstance(item, dict):
            continue
        for method in METHODS:
            operation = item.get(method)
            if isinstance(operation, dict):
                yield _operation(str(path), method, operation, item, document)


def _operation(
    path: str, method: str, operation: dict[str, Any], item: dict[str, Any], document: Any
) -> ApiOperation:
    inline = Inliner(document)
    parameters: list[ApiParameter] = []
    for parameter in [*_listed(item), *_listed(operation)]:
        parameter = inline(parameter)
        if not isinstance(parameter, dict) or not isinstance(parameter.get("name"), str):
            continue
        place = parameter.get("in")
        schema = parameter.get("schema") if place == "body" else parameter_schema(parameter)
        parameters.append(ApiParameter(parameter["name"], place, schema, parameter.get("required")))
    body = inline(operation.get("requestBody"))
    if isinstance(body, dict):
        parameters.append(ApiParameter("body", "body", content_schema(body), body.get("required")))
    response = _response_schema(operation, inline)
    return ApiOperation(
        path=path,
        method=method,
        name=operation.get("operationId") or f"{method}_{path.strip('/')}",
        summary=operation.get("summary"),
        description=operation.get("description"),
        parameters=tuple(parameters),
        response=response,
        notes=tuple(inline.notes),
    )


def _listed(node: Mapping[str, Any]) -> list[Any]:
    listed = node.get("parameters")
    return listed if isinstance(listed, list) else []


def parameter_schema(parameter: Mapping[str, Any]) -> Any:
    """The schema of a parameter, with its description."""
    schema = parameter.get("schema")
    content = parameter.get("content")
    if not isinstance(schema, dict) and isinstance(content, dict):
        schema = content_schema(parameter)
    if not isinstance(schema, dict):  # Swagger 2.0 keeps the type on the parameter itself
        schema = {key: parameter[key] for key in _SCHEMA_KEYS if key in parameter}
    described = parameter.get("description")
    return schema | ({"description": described} if isinstance(described, str) else {})


def content_schema(node: Mapping[str, Any]) -> Any:
    """The schema of what is sent or answered, as JSON where there is a choice."""
    content = node.get("content")
    if not isinstance(content, dict):
        return node.get("schema")
    for kind in ("application/json", *content):
        media = content.get(kind)
        if isinstance(media, dict) and "schema" in media:
            return media["schema"]
    return None


def _response_schema(operation: Mapping[str, Any], inline: Inliner) -> Any:
    responses = operation.get("responses")
    if not isinstance(responses, dict):
        return None
    for code in ("200", 200, "201", 201):
        response = responses.get(code)
        if isinstance(response, dict):
            if isinstance(response.get("$ref"), str):
                response = resolved(response["$ref"], inline.document)
            return inline(content_schema(response)) if isinstance(response, dict) else None
    return None
