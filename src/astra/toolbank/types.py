"""Type names found in tool documents, and values made to fit a JSON type."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

_NAMES = {
    "string": "string str char varchar text enum binary file byte uuid url uri email time",
    "number": "number float double decimal numeric real",
    "integer": "integer int long short",
    "boolean": "boolean bool",
    "object": "object dict hashmap map json",
    "array": "array list tuple arraylist set",
    "null": "null none",
}
_KNOWN = {name: kind for kind, names in _NAMES.items() for name in names.split()}
_INTEGER = re.compile(r"(u|big|small|tiny)?int(eger)?(8|16|32|64|128)?")
_NUMBER = re.compile(r"(float|double|decimal)(16|32|64|128)")
_GENERIC = re.compile(r"(\w+) ?[\[<](.*)[\]>]")
_LISTS = frozenset("array list arraylist set sequence iterable collection vector".split())
MAX_NAME = 100
"""The most characters of a type name that is read."""
_PYTHON = {
    "string": str, "number": (int, float), "integer": int, "boolean": bool,
    "object": dict, "array": list, "null": type(None),
}  # fmt: skip
MISFIT = object()
"""Marks a value that has no equivalent in the wanted type."""


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def type_keywords(kind: Any) -> dict[str, Any]:
    """What a foreign type name says in JSON Schema: ``type``, ``format``, ``items``.

    A name that says nothing, or that nobody knows, gives none of them: any value.
    """
    if not isinstance(kind, str) or len(kind) > MAX_NAME:
        return {}
    name = " ".join(kind.lower().split())
    if name in _KNOWN:
        return _single(name)
    alternatives = _parts(name, "|")
    if len(alternatives) > 1:
        return _union(alternatives)
    if name.endswith("?"):
        return _union([name[:-1], "null"])
    if name.endswith("[]"):
        return {"type": "array", "items": type_keywords(name[:-2])}
    return _generic(name) or _single(name)


def _parts(name: str, mark: str) -> list[str]:
    """``name`` cut at each ``mark`` that stands outside brackets."""
    parts, depth = [""], 0
    for character in name:
        depth += (character in "[<(") - (character in "]>)")
        if character == mark and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _union(names: Sequence[str]) -> dict[str, Any]:
    """The keywords of a value of any of the types; of an unknown one it may be anything."""
    kinds: dict[str, None] = {}
    rest: dict[str, Any] = {}
    for said in map(type_keywords, names):
        if "type" not in said:
            return {}
        own = said.pop("type")
        kinds |= dict.fromkeys(own if isinstance(own, list) else [own])
        if said.get("items", {}) != rest.get("items", said.get("items", {})):
            said["items"] = {}
        rest |= said
    listed = list(kinds)
    return {"type": listed if len(listed) > 1 else listed[0], **rest}


def _generic(name: str) -> dict[str, Any]:
    """The keywords of ``optional[int]``, ``list<str>`` and the like; none for what is no such."""
    match = _GENERIC.fullmatch(name)
    if not match:
        return {}
    outer, inner = match[1], _parts(match[2], ",")
    if outer == "optional":
        return _union([match[2], "null"])
    if outer == "union":
        return _union(inner)
    if outer in _LISTS:
        return {"type": "array", "items": type_keywords(inner[0]) if len(inner) == 1 else {}}
    return {}


def _single(name: str) -> dict[str, Any]:
    # Remarks follow some names, as in "TIME (24-hour HH:MM)".
    known = _KNOWN.get(name.partition(" (")[0])
    if known:
        return {"type": known, "items": {}} if known == "array" else {"type": known}
    if name.startswith("date"):
        return {"type": "string", "format": "date-time" if "time" in name else "date"}
    if name.startswith(("array", "list")):
        return {"type": "array", "items": {}}
    if name.startswith(("map", "hashmap", "dict")):
        return {"type": "object"}
    if _INTEGER.fullmatch(name):
        return {"type": "integer"}
    return {"type": "number"} if _NUMBER.fullmatch(name) else {}


def coerce(value: Any, kind: Any) -> Any:
    """``value`` as JSON type ``kind`` where that loses nothing, else ``MISFIT``."""
    if kind is None or (isinstance(kind, list) and any(_fits(value, item) for item in kind)):
        return value
    name = kind[0] if isinstance(kind, list) else kind
    if _fits(value, name):
        return value
    if name in ("number", "integer") and isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            return MISFIT
        if not math.isfinite(number):
            return MISFIT
        if number.is_integer():
            return int(number)
        return number if name == "number" else MISFIT
    if name == "boolean" and isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if name == "string" and is_number(value):
        return str(value)
    return MISFIT


def _fits(value: Any, kind: Any) -> bool:
    if kind not in _PYTHON:
        return True
    if isinstance(value, bool) and kind != "boolean":
        return False
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _PYTHON[kind])
