"""Type names found in tool documents, and values made to fit a JSON type."""

from __future__ import annotations

import math
from typing import Any

_JSON_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
_FOREIGN = {
    "str": "string", "char": "string", "text": "string", "enum": "string", "binary": "string",
    "file": "string", "byte": "string", "float": "number", "double": "number", "decimal": "number",
    "int": "integer", "long": "integer", "short": "integer", "bigint": "integer",
    "bool": "boolean", "dict": "object", "hashmap": "object", "map": "object", "json": "object",
    "list": "array", "tuple": "array", "arraylist": "array", "set": "array", "none": "null",
}  # fmt: skip
_ANY = ("any", "", "unknown", "object|string", "mixed")
_PYTHON = {
    "string": str, "number": (int, float), "integer": int, "boolean": bool,
    "object": dict, "array": list, "null": type(None),
}  # fmt: skip
MISFIT = object()
"""Marks a value that has no equivalent in the wanted type."""


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def map_type(kind: Any) -> tuple[str | None, str | None]:
    """JSON type and format of a foreign type name; type None means any."""
    if not isinstance(kind, str):
        return None, None
    name = kind.strip()
    if name in _JSON_TYPES:
        return name, None
    lowered = name.lower()
    if lowered in _JSON_TYPES:
        return lowered, None
    if lowered in _ANY:
        return None, None
    if lowered.startswith("date"):
        return "string", "date" if "time" not in lowered else "date-time"
    if lowered.startswith(("array", "list", "arraylist")):
        return "array", None
    if lowered.startswith(("map", "hashmap", "dict")):
        return "object", None
    return _FOREIGN.get(lowered, "string"), None


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
