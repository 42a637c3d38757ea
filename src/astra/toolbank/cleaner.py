"""Cleaner: one pass over a schema tree that turns quirks in the wild into JSON Schema 2020-12.

The quirks were counted in public tool documents: foreign type names, draft-04 booleans, defaults
of the wrong type, dangling references, bad patterns. Every change is recorded with its place.
"""

from __future__ import annotations

import json
from typing import Any

from astra.text.inline import lookup
from astra.toolbank.types import MISFIT, coerce, is_number, type_keywords
from astra.toolbank.validity import BRANCHES, COUNTS, FLAGS, MAPPINGS, SCHEMAS, compiles

_DROPPED = frozenset(
    ("optional", "nullable", "example", "$schema", "$id", "id", "$anchor", "$vocabulary",
     "$dynamicAnchor", "$recursiveAnchor", "$dynamicRef", "$recursiveRef")
)  # fmt: skip
_CONDITIONAL = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else")
"""Their schemas may name properties that only the schema around them defines."""


def clip(text: str, limit: int) -> str:
    """``text`` of at most ``limit`` characters, cut between words where there are any."""
    if len(text) <= limit:
        return text
    head = text[: limit - 1]
    between = head.rfind(" ")
    return f"{head[:between] if between > limit // 2 else head}…"


class Cleaner:
    """``repairs`` collects what changed; ``titles`` keeps titles, which outputs are named by."""

    def __init__(
        self, root: dict[str, Any], repairs: list[str], max_text: int, titles: bool = False
    ) -> None:
        self._root = root
        self._repairs = repairs
        self._max_text = max_text
        self._titles = titles
        self._referring: list[dict[str, Any]] = []

    def _note(self, where: str, what: str) -> None:
        self._repairs.append(f"{where or '/'}: {what}")

    def clean(self, schema: dict[str, Any], where: str, branch: bool = False) -> dict[str, Any]:
        """The cleaned copy of ``schema``; ``branch``: it adds to the schema around it."""
        out: dict[str, Any] = {}
        if isinstance(schema.get("properties"), list):
            self._note(where, "list of properties became an object")
            schema = {**schema, "properties": _by_name(schema["properties"])}
        for key, value in schema.items():
            if key in _DROPPED or (key == "title" and not self._titles):
                continue
            if key in MAPPINGS:
                out[key] = self._mapping(value, f"{where}/{key}", key)
            elif key in BRANCHES:
                branches = self._branches(value, f"{where}/{key}", key in _CONDITIONAL)
                if branches:
                    out[key] = branches
            elif key == "items":
                self._items(value, out, where)
            elif key in SCHEMAS:
                if isinstance(value, bool):
                    out[key] = value
                elif isinstance(value, dict):
                    out[key] = self.clean(value, where, key in _CONDITIONAL)
            elif key in ("dependencies", "dependentRequired"):
                self._dependencies(value, out, where)
            else:
                out[key] = value
        self._type(schema, out, where)
        self._required(schema, out, where, branch)
        self._bounds(out, where)
        self._texts(out, where)
        self._references(out, where)
        self._values(schema, out, where)
        return out

    def _mapping(self, value: Any, where: str, key: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._note(where, "not an object, emptied")
            return {}
        out: dict[str, Any] = {}
        for name, item in value.items():
            if key == "patternProperties" and not compiles(name):
                self._note(where, "pattern dropped: not a regular expression here")
            elif isinstance(item, dict):
                out[name] = self.clean(item, f"{where}/{name}", key == "dependentSchemas")
            elif isinstance(item, bool):
                out[name] = item
            elif isinstance(item, str):
                out[name] = self.clean({"type": item}, f"{where}/{name}")
                self._note(f"{where}/{name}", "bare type name wrapped")
            else:
                self._note(f"{where}/{name}", "not a schema, dropped")
        return out

    def _branches(self, value: Any, where: str, branch: bool) -> list[Any]:
        flat: list[Any] = []
        for item in value if isinstance(value, list) else [value]:
            flat += item if isinstance(item, list) else [item]
        if flat != value:
            self._note(where, "branches flattened")
        return [self.clean(item, where, branch) for item in flat if isinstance(item, dict)]

    def _items(self, value: Any, out: dict[str, Any], where: str) -> None:
        if isinstance(value, list):
            self._note(where, "tuple-form items became prefixItems")
            out["prefixItems"] = self._branches(value, f"{where}/items", branch=False)
            if not out["prefixItems"]:
                del out["prefixItems"]
        elif isinstance(value, dict):
            out["items"] = self.clean(value, f"{where}/items")
        elif isinstance(value, bool):
            out["items"] = value
        elif isinstance(value, str):
            out["items"] = self.clean({"type": value}, f"{where}/items")
            self._note(f"{where}/items", "bare type name wrapped")

    def _dependencies(self, value: Any, out: dict[str, Any], where: str) -> None:
        """Draft-07 ``dependencies`` hold lists of names or schemas; 2020-12 keeps them apart."""
        for name, item in value.items() if isinstance(value, dict) else ():
            if isinstance(item, list):
                names = list(dict.fromkeys(part for part in item if isinstance(part, str)))
                out.setdefault("dependentRequired", {})[name] = names
            elif isinstance(item, dict):
                schema = self.clean(item, f"{where}/dependentSchemas/{name}", branch=True)
                out.setdefault("dependentSchemas", {})[name] = schema
        split = {k: out.get(k) for k in ("dependentRequired", "dependentSchemas") if k in out}
        if split != {"dependentRequired": value}:
            self._note(where, "dependencies split by kind")

    def _type(self, schema: dict[str, Any], out: dict[str, Any], where: str) -> None:
        if "type" not in schema:
            return
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        mapped: list[str] = []
        items: Any = {}
        for said in map(type_keywords, kinds):
            if "format" in said and "format" not in out:
                out["format"] = said["format"]
            if "type" not in said:
                mapped = []
                break
            own = said["type"] if isinstance(said["type"], list) else [said["type"]]
            mapped += [name for name in own if name not in mapped]
            items = said.get("items", items)
        if schema.get("nullable") is True and mapped and "null" not in mapped:
            mapped.append("null")
        if not mapped:
            out.pop("type", None)
        else:
            out["type"] = mapped[0] if len(mapped) == 1 else mapped
        if out.get("type") != schema["type"]:
            self._note(where, f"type {str(schema['type'])[:40]!r} became {out.get('type')!r}")
        if "array" in mapped and "items" not in out and "prefixItems" not in out:
            # Chat APIs refuse an array that does not say what it holds.
            out["items"] = items
            if not items:
                self._note(where, "array without items: any item")

    def _required(
        self, schema: dict[str, Any], out: dict[str, Any], where: str, branch: bool
    ) -> None:
        properties = out.get("properties", {})
        known = properties.__contains__ if properties or not branch else lambda name: True
        raw = schema.get("required")
        listed = raw if isinstance(raw, list) else []
        if raw is not None and not isinstance(raw, list):
            out.pop("required", None)
        wanted = [name for name in listed if isinstance(name, str) and known(name)]
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
                if value and is_number(out.get(bound)):
                    out[exclusive] = out.pop(bound)
            elif value is not None and not is_number(value):
                self._note(where, f"{exclusive} is no number, dropped")
                del out[exclusive]
        for key in ("minimum", "maximum", "multipleOf"):
            if key in out and not (is_number(out[key]) and (key != "multipleOf" or out[key] > 0)):
                self._note(where, f"{key} is no usable number, dropped")
                del out[key]
        for key in COUNTS:
            if key in out and not (is_number(out[key]) and out[key] >= 0 and out[key] % 1 == 0):
                self._note(where, f"{key} is no count, dropped")
                del out[key]
        for key in FLAGS:
            if key in out and not isinstance(out[key], bool):
                self._note(where, f"{key} is no boolean, dropped")
                del out[key]

    def _texts(self, out: dict[str, Any], where: str) -> None:
        if "pattern" in out and not compiles(out["pattern"]):
            self._note(where, "pattern dropped: not a regular expression here")
            del out["pattern"]
        for key in (
            "description", "title", "format", "$comment", "contentEncoding", "contentMediaType"
        ):  # fmt: skip
            if key in out and not isinstance(out[key], str):
                self._note(where, f"{key} is no text, dropped")
                del out[key]
        for key in ("description", "title", "$comment"):
            if len(out.get(key, "")) > self._max_text:
                self._note(where, f"{key} of {len(out[key])} characters cut")
                out[key] = clip(out[key], self._max_text)

    def _references(self, out: dict[str, Any], where: str) -> None:
        if "$ref" not in out:
            return
        if self._resolves(out["$ref"]):
            self._referring.append(out)
        else:
            self._note(where, f"reference {str(out['$ref'])[:80]!r} dropped")
            del out["$ref"]

    def drop_dangling(self, cleaned: dict[str, Any]) -> None:
        """Drop references to what moved or left while the document was cleaned."""
        for node in self._referring:
            pointer = node["$ref"]
            if pointer != "#" and lookup(cleaned, pointer) is None:
                self._note("", f"reference {pointer[:80]!r} dropped")
                del node["$ref"]

    def _resolves(self, pointer: Any) -> bool:
        seen: set[str] = set()
        while True:
            # A chain of bare references that returns to itself would never end in validation.
            if not isinstance(pointer, str) or pointer in seen:
                return False
            if pointer == "#":
                return True
            seen.add(pointer)
            node = lookup(self._root, pointer)
            if not isinstance(node, dict):
                return False
            if "$ref" not in node:
                return True
            pointer = node["$ref"]

    def _values(self, schema: dict[str, Any], out: dict[str, Any], where: str) -> None:
        kind = out.get("type")
        enum = out.get("enum")
        if "enum" in out:
            usable = [coerce(item, kind) for item in enum] if isinstance(enum, list) else []
            usable = [item for item in usable if item is not MISFIT]
            if not usable:
                self._note(where, "enum without fitting values dropped")
                del out["enum"]
            else:
                if usable != enum:
                    self._note(where, "enum values made to fit the type")
                distinct: dict[str, Any] = {}
                for item in usable:
                    distinct.setdefault(json.dumps(item, sort_keys=True), item)
                out["enum"] = list(distinct.values())
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


def _by_name(items: list[Any]) -> dict[str, Any]:
    """Properties written as ``[{name, ...}]``."""
    return {
        item["name"]: {key: part for key, part in item.items() if key != "name"}
        for item in items
        if isinstance(item, dict) and isinstance(item.get("name"), str)
    }
