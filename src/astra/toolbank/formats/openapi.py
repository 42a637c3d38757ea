"""OpenAPI 3.x and Swagger 2.0 documents, one tool per operation: format ``openapi``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from astra.text.inline import add_body
from astra.text.openapi import ApiOperation, NotOpenApi, operations
from astra.toolbank.effects import method_effect
from astra.toolbank.raw import BadDocument, RawServer, RawTool


def parse(document: Any, base: RawServer) -> Iterator[RawServer]:
    """The document's one server; cookie and header parameters of its tools are left out.

    Raises BadDocument if it is no OpenAPI document.
    """
    try:
        tools = tuple(map(_tool, operations(document)))
    except NotOpenApi as error:
        raise BadDocument(str(error)) from None
    info = document.get("info")
    info = info if isinstance(info, dict) else {}
    licence = info.get("license")
    about = dict(info) | {"license": licence.get("name") if isinstance(licence, dict) else None}
    yield replace(base.described(about), tools=tools)


def _tool(operation: ApiOperation) -> RawTool:
    properties: dict[str, Any] = {}
    required: list[str] = []
    left_out: list[str] = []
    for parameter in operation.parameters:
        place, name = parameter.place, parameter.name
        if place == "body":
            add_body(parameter.schema, parameter.required, properties, required)
        elif place in ("query", "path", "formData"):
            properties[name] = parameter.schema
            if parameter.required is True or place == "path":
                required.append(name)
        else:
            left_out.append(f"{place} parameter {name[:64]!r} left out")
    described = operation.description or operation.summary
    return RawTool(
        name=operation.name,
        description=described,
        parameters={"type": "object", "properties": properties, "required": required},
        output=operation.response,
        notes=(*left_out, *operation.notes),
        effect=method_effect(
            operation.method, operation.name, operation.path, operation.summary or described
        ),
    )
