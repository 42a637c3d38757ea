"""Turns any parameter schema found in the wild into JSON Schema 2020-12, each change recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from astra.text.inline import lookup
from astra.toolbank.branches import TooManyBranches, branches_merged, flat_hoisted
from astra.toolbank.cleaner import Cleaner
from astra.toolbank.validity import problem

MAX_NODES = 20_000
MAX_DEPTH = 40
MAX_CHARS = 500_000
"""The most characters in all texts of one schema together, names of keys included."""
MAX_TEXT = 1024
"""The most characters of one description that chat APIs take."""
_CUT = ("description", "title", "$comment")
_REMARKS = (*_CUT, "examples", "deprecated", "$defs", "definitions")


class Unmappable(ValueError):
    """The schema has no equivalent in JSON Schema 2020-12; ``reason`` is a short code."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class _Plain:
    """Copies a value with JSON types only, within bounds on depth, nodes and text."""

    def __init__(self) -> None:
        self._nodes = MAX_NODES
        self._chars = MAX_CHARS

    def convert(self, node: Any, depth: int = 0, key: str = "") -> Any:
        self._nodes -= 1
        if depth > MAX_DEPTH or self._nodes < 0:
            raise Unmappable("schema_too_large", f"over {MAX_DEPTH} levels or {MAX_NODES} nodes")
        if isinstance(node, str):
            return self._text(node, key)
        if isinstance(node, Mapping):
            return {
                self._text(str(name), ""): self.convert(item, depth + 1, str(name))
                for name, item in node.items()
            }
        if isinstance(node, list | tuple):
            return [self.convert(item, depth + 1) for item in node]
        if isinstance(node, float) and not math.isfinite(node):
            return None
        if isinstance(node, date | datetime):
            return node.isoformat()
        return node if node is None or isinstance(node, bool | int | float) else str(node)

    def _text(self, text: str, key: str) -> str:
        # These are cut later, whatever their length, so they do not count in full.
        self._chars -= min(len(text), MAX_TEXT) if key in _CUT else len(text)
        if self._chars < 0:
            raise Unmappable("schema_too_large", f"over {MAX_CHARS} characters")
        return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def plain_json(value: Any) -> Any:
    """``value`` with JSON types only: YAML dates and odd keys become text, NaN becomes null.

    Raises Unmappable when it is nested or large beyond bounds (or contains itself).
    """
    return _Plain().convert(value)


def normalise_parameters(raw: Any, max_text: int = MAX_TEXT) -> tuple[dict[str, Any], list[str]]:
    """A parameter schema of type object and the repairs made. Raises Unmappable.

    ``max_text`` is the length that descriptions are cut to.
    """
    if raw is None or raw == [] or raw == "":
        return {"type": "object", "properties": {}}, ["parameters missing"]
    document = plain_json(raw)
    if isinstance(document, list):
        document = _from_list(document)
    if not isinstance(document, dict):
        raise Unmappable("parameters_not_object", f"parameters are {type(document).__name__}")
    repairs: list[str] = []
    document = _root_reference(_unwrap(document, repairs), repairs)
    try:
        document = branches_merged(flat_hoisted(document, repairs), repairs)
    except TooManyBranches as error:
        raise Unmappable("schema_too_large", str(error)) from None
    schema = _clean(document, repairs, max_text)
    if schema.get("type", "object") != "object":
        kinds = schema["type"]
        if not (isinstance(kinds, list) and "object" in kinds):
            raise Unmappable("parameters_not_object", f"parameters have type {kinds!r}")
        repairs.append("/: parameters are always an object")
        schema["type"] = "object"
    return _checked({"type": "object", "properties": {}} | schema), repairs


def normalise_output(raw: Any, max_text: int = MAX_TEXT) -> tuple[dict[str, Any] | None, list[str]]:
    """An output schema, or None where it is absent, unusable or says nothing (recorded)."""
    if raw is None:
        return None, []
    try:
        document = plain_json(raw)
        if not isinstance(document, dict):
            raise Unmappable("output_not_schema", "not an object")
        repairs: list[str] = []
        schema = _checked(_clean(document, repairs, max_text, titles=True))
        if _says_nothing(schema):
            raise Unmappable("output_says_nothing", "any value, or any object")
        return schema, repairs
    except Unmappable as error:
        return None, [f"output schema dropped ({error.reason})"]


def _says_nothing(schema: dict[str, Any]) -> bool:
    """Whether any value or any object will do: what frameworks write for results without types."""
    rest = {key: part for key, part in schema.items() if key not in _REMARKS}
    if rest.get("additionalProperties") in (True, {}):
        del rest["additionalProperties"]
    return rest in ({}, {"type": "object"}, {"type": "object", "properties": {}})


def _clean(
    document: dict[str, Any], repairs: list[str], max_text: int, titles: bool = False
) -> dict[str, Any]:
    cleaner = Cleaner(document, repairs, max_text, titles)
    schema = cleaner.clean(document, "")
    cleaner.drop_dangling(schema)
    return schema


def _checked(schema: dict[str, Any]) -> dict[str, Any]:
    try:
        wrong = problem(schema)
    except RecursionError:
        raise Unmappable("schema_too_large", "recursion while checking") from None
    if wrong:
        raise Unmappable("schema_invalid", wrong)
    return schema


def _from_list(items: list[Any]) -> dict[str, Any]:
    """``[{name, type, required, ...}]`` (listing pages, docker registry) -> an object schema."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    for item in items:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise Unmappable("parameters_not_object", "a parameter list holds no named parameters")
        name = item["name"]
        description = item.get("description") or item.get("desc")
        rest = {
            key: value
            for key, value in item.items()
            if key not in ("name", "required", "optional", "desc", "description")
        }
        properties[name] = rest | ({"description": description} if description else {})
        if item.get("required") is True or item.get("optional") is False:
            required.append(name)
    return {"type": "object", "properties": properties, "required": required}


def _unwrap(document: dict[str, Any], repairs: list[str]) -> dict[str, Any]:
    """Undo a whole schema nested inside ``properties``."""
    inner = document.get("properties")
    if (
        isinstance(inner, dict)
        and inner.get("type") == "object"
        and isinstance(inner.get("properties"), dict)
    ):
        repairs.append("schema nested in properties hoisted")
        return inner
    return document


def _root_reference(document: dict[str, Any], repairs: list[str]) -> dict[str, Any]:
    """A root that is only a reference, replaced by what it names: callers read ``properties``."""
    pointer = document.get("$ref")
    target = lookup(document, pointer) if isinstance(pointer, str) else None
    if not isinstance(target, dict) or "properties" in document:
        return document
    repairs.append(f"root reference {pointer!r} inlined")
    rest = {key: value for key, value in document.items() if key != "$ref"}
    return {**rest, **target}
