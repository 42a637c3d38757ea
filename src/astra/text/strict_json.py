"""JSON as the standard has it: no key twice, no NaN, no infinity, nothing merged or filled in."""

from __future__ import annotations

import json
import math
from typing import Any


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Hook for objects: ValueError for a key given twice, which the decoder would merge."""
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise ValueError(f"key given twice in {keys}")
    return dict(pairs)


def no_constant(name: str) -> Any:
    """Hook for NaN and infinities, which the decoder would let pass: ValueError."""
    raise ValueError(f"{name} is not JSON")


def finite(text: str) -> float:
    """Hook for numbers: ValueError for one that overflows to infinity."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is out of range")
    return number


def depth(value: Any) -> int:
    """How many lists and objects lie in each other, 0 for any other value."""
    inner: Any = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth, inner), default=0) if isinstance(value, dict | list) else 0


STRICT = json.JSONDecoder(
    object_pairs_hook=unique_keys, parse_constant=no_constant, parse_float=finite
)
"""Raises ValueError for text that is no JSON, RecursionError for text nested too deeply."""
