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


MAX_DEPTH = 64
"""Levels of lists and objects that are taken; as deep as the sandbox lets a result be."""


def refuse_unstorable(value: Any) -> None:
    """Raises ValueError for parsed JSON that no file, hash or protocol takes: halves of surrogate
    pairs, which parse where they are escaped, and more than MAX_DEPTH levels."""
    json.dumps(value, ensure_ascii=False).encode()
    if _depth(value) > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")


def _depth(value: Any) -> int:
    inner: Any = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_depth, inner), default=0) if isinstance(value, dict | list) else 0


STRICT = json.JSONDecoder(
    object_pairs_hook=unique_keys, parse_constant=no_constant, parse_float=finite
)
"""Raises ValueError for text that is no JSON, RecursionError for text nested too deeply."""
