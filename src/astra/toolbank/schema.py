"""Any parameter schema found in the wild -> JSON Schema 2020-12, each change recorded.

The quirks handled here were counted in public tool documents: foreign type names, draft-04
booleans, nested whole schemas, defaults of the wrong type, dangling references, bad patterns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from astra.toolbank.types import MISFIT, coerce, is_number, map_type

MAX_NODES = 20_000
MAX_DEPTH = 40
_COUNTS = (
    "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"
)  # fmt: skip


class Unmappable(ValueError):
    """The schema has no equivalent in JSON Schema 2020-12; ``reason`` is a short code."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


def plain_json(value: Any) -> Any:
    """``value`` with JSON types only: YAML dates and odd keys become text, NaN becomes null.

    Raises Unmappable when it is nested or large beyond bounds (or contains itself).
    """
    budget = [MAX_NODES]

    def convert(node: Any, depth: int) -> Any:
        budget[0] -= 1
        if depth > MAX_DEPTH or budget[0] < 0:
            raise Unmappable("schema_too_large", f"over {MAX_DEPTH} levels or {MAX_NODES} nodes")
        if isinstance(node, Mapping):
            return {
                convert(str(key), depth): convert(item, depth + 1) for key, item in node.items()
            }
        if isinstance(node, list | tuple):
            return [convert(item, depth + 1) for item in node]
        if isinstance(node, str):
            return node.encode("utf-8", "replace").decode("utf-8")
        if isinstance(node, float) and not math.isfinite(node):
            return None
        if isinstance(node, date | datetime):
            return node.isoformat()
        return node if node is None or isinstance(node, bool | int | float) else str(node)

    return convert(value, 0)


def normalise_parameters(raw: Any) -> tuple[dict[str, Any], list[str]]:
    """A parameter schema of type object and the repairs made. Raises Unmappable."""
    if raw is None or raw == [] or raw == "":
        return {"type": "object", "properties": {}}, ["parameters missing"]
    document = plain_json(raw)
    if isinstance(document, list):
        document = _from_list(document)
    if not isinstance(document, dict):
        raise Unmappable("parameters_not_object", f"parameters are {type(document).__name__}")
    repairs: list[str] = []
    document = _unwrap(document, repairs)
    schema = _Cleaner(document, repairs).clean(document, "")
    if schema.get("type", "object") != "object":
        raise Unmappable("parameters_not_object", f"parameters have type {schema['type']!r}")
    schema = {"type": "object", "properties": {}} | schema
    return _checked(schema), repairs


def normalise_output(raw: Any) -> tuple[dict[str, Any] | None, list[str]]:
    """An output schema, or None where it is absent or unusable (recorded)."""
    if raw is None:
        return None, []
    try:
        document = plain_json(raw)
        if not isinstance(document, dict):
            raise Unmappable("output_not_schema", "not an object")
        repairs: list[str] = []
        return _checked(_Cleaner(document, repairs, titles=True).clean(document, "")), repairs
    except Unmappable as error:
        return None, [f"output schema dropped ({error.reason})"]


def _checked(schema: dict[str, Any]) -> dict[str, Any]:
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        where = "/".join(map(str, error.absolute_path))
        raise Unmappable("schema_invalid", f"{where}: {error.message[:200]}") from None
    except RecursionError:
        raise Unmappable("schema_too_large", "recursion while checking") from None
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


class _Cleaner:
    """One pass over a schema tree; ``repairs`` collects what changed, with its place."""

    def __init__(self, root: dict[str, Any], repairs: list[str], titles: bool = False) -> None:
        self._root = root
        self._repairs = repairs
        self._titles = titles

    def _note(self, where: str, what: str) -> None:
        self._repairs.append(f"{where or '/'}: {what}")

    def clean(self, schema: dict[str, Any], where: str) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in schema.items():
            if key in ("optional", "nullable", "example", "$schema", "$id", "id", "$anchor"):
                continue
            if key == "title" and not self._titles:
                continue
            if key in ("properties", "$defs", "definitions", "patternProperties"):
                out[key] = self._mapping(value, f"{where}/{key}")
            elif key in ("anyOf", "oneOf", "allOf", "prefixItems"):
                branches = self._branches(value, f"{where}/{key}")
                if branches:
                    out[key] = branches
            elif key == "items":
                self._items(value, out, where)
            elif key in ("additionalProperties", "not", "if", "then", "else", "contains"):
                if isinstance(value, bool | dict):
                    out[key] = value if isinstance(value, bool) else self.clean(value, where)
            else:
                out[key] = value
        self._type(schema, out, where)
        self._required(schema, out, where)
        self._bounds(out, where)
        self._references(out, where)
        self._values(schema, out, where)
        return out

    def _mapping(self, value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._note(where, "not an object, emptied")
            return {}
        out: dict[str, Any] = {}
        for name, item in value.items():
            if isinstance(item, dict):
                out[name] = self.clean(item, f"{where}/{name}")
            elif isinstance(item, bool):
                out[name] = item
            elif isinstance(item, str):
                out[name] = self.clean({"type": item}, f"{where}/{name}")
                self._note(f"{where}/{name}", "bare type name wrapped")
            else:
                self._note(f"{where}/{name}", "not a schema, dropped")
        return out

    def _branches(self, value: Any, where: str) -> list[Any]:
        flat: list[Any] = []
        for branch in value if isinstance(value, list) else [value]:
            flat += branch if isinstance(branch, list) else [branch]
        if flat != value:
            self._note(where, "branches flattened")
        return [self.clean(branch, where) for branch in flat if isinstance(branch, dict)]

    def _items(self, value: Any, out: dict[str, Any], where: str) -> None:
        if isinstance(value, list):
            self._note(where, "tuple-form items became prefixItems")
            out["prefixItems"] = self._branches(value, f"{where}/items")
            if not out["prefixItems"]:
                del out["prefixItems"]
        elif isinstance(value, dict):
            out["items"] = self.clean(value, f"{where}/items")
        elif isinstance(value, bool):
            out["items"] = value

    def _type(self, schema: dict[str, Any], out: dict[str, Any], where: str) -> None:
        if "type" not in schema:
            return
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        mapped: list[str] = []
        for kind in kinds:
            name, form = map_type(kind)
            if form and "format" not in out:
                out["format"] = form
            if name and name not in mapped:
                mapped.append(name)
            if name is None:
                mapped = []
                break
        if schema.get("nullable") is True and mapped and "null" not in mapped:
            mapped.append("null")
        if not mapped:
            out.pop("type", None)
        else:
            out["type"] = mapped[0] if len(mapped) == 1 else mapped
        if out.get("type") != schema["type"]:
            self._note(where, f"type {str(schema['type'])[:40]!r} became {out.get('type')!r}")

    def _required(self, schema: dict[str, Any], out: dict[str, Any], where: str) -> None:
        properties = out.get("properties", {})
        raw = schema.get("required")
        listed = raw if isinstance(raw, list) else []
        if raw is not None and not isinstance(raw, list):
            out.pop("required", None)
        wanted = [name for name in listed if isinstance(name, str) and name in properties]
        inner = schema.get("properties")
        if isinstance(inner, dict):  # draft-03 style: required: true on the property itself
            wanted += [
                name
                for name, item in inner.items()
                if isinstance(item, dict) and item.get("required") is True and name in properties
            ]
        wanted = list(dict.fromkeys(wanted))
        if wanted != listed and (listed or wanted):
            self._note(where, "required made consistent with properties")
        if wanted:
            out["required"] = wanted
        else:
            out.pop("required", None)

    def _bounds(self, out: dict[str, Any], where: str) -> None:
        for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            value = out.get(exclusive)
            if isinstance(value, bool):
                self._note(where, f"boolean {exclusive} converted")
                del out[exclusive]
                if value and isinstance(out.get(bound), int | float):
                    out[exclusive] = out.pop(bound)
        for key in ("minimum", "maximum", "multipleOf", *_COUNTS):
            if key in out and not is_number(out[key]):
                self._note(where, f"{key} is no number, dropped")
                del out[key]
        pattern = out.get("pattern")
        if pattern is not None and not _compiles(pattern):
            self._note(where, "pattern dropped: not a regular expression here")
            del out["pattern"]
        for key in ("description", "title", "format"):
            if key in out and not isinstance(out[key], str):
                del out[key]

    def _references(self, out: dict[str, Any], where: str) -> None:
        for key in ("$dynamicRef", "$recursiveRef"):
            out.pop(key, None)
        if "$ref" in out and not self._resolves(out["$ref"]):
            self._note(where, f"reference {str(out['$ref'])[:80]!r} dropped")
            del out["$ref"]

    def _resolves(self, pointer: Any) -> bool:
        seen: set[str] = set()
        while True:
            # A chain of bare references that returns to itself would never end in validation.
            if not isinstance(pointer, str) or pointer in seen or not pointer.startswith("#/"):
                return False
            seen.add(pointer)
            node: Any = self._root
            for part in pointer[2:].split("/"):
                key = part.replace("~1", "/").replace("~0", "~")
                if not isinstance(node, dict) or key not in node:
                    return False
                node = node[key]
            if not isinstance(node, dict):
                return False
            if "$ref" not in node:
                return True
            pointer = node["$ref"]

    def _values(self, schema: dict[str, Any], out: dict[str, Any], where: str) -> None:
        kind = out.get("type")
        enum = out.get("enum")
        if enum is not None:
            usable = [coerce(item, kind) for item in enum] if isinstance(enum, list) else []
            usable = [item for item in usable if item is not MISFIT]
            if not usable:
                self._note(where, "enum without fitting values dropped")
                del out["enum"]
            else:
                if usable != enum:
                    self._note(where, "enum values made to fit the type")
                out["enum"] = [v for i, v in enumerate(usable) if v not in usable[:i]]
        if "default" in out:
            value = coerce(out["default"], kind)
            if value is MISFIT:
                self._note(where, "default of another type dropped")
                del out["default"]
            elif value != out["default"]:
                self._note(where, "default made to fit the type")
                out["default"] = value
        examples = out.pop("examples", None)
        single = schema.get("example")
        listed = examples if isinstance(examples, list) else []
        listed = [*listed, *([single] if single is not None else [])]
        fitting = [v for v in (coerce(item, kind) for item in listed) if v is not MISFIT]
        if fitting:
            out["examples"] = fitting


def _compiles(pattern: Any) -> bool:
    try:
        re.compile(pattern)
    except (re.error, TypeError, RecursionError, OverflowError):
        return False
    return True
