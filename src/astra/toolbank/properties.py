"""Property names that chat APIs accept, with the originals kept for execution."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any

from astra.toolbank.clean import MAX_NAME, safe_name

_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SAME_OBJECT = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
"""Keywords whose schemas apply to the object that the schema around them describes."""

_DATA = ("default", "const", "enum", "examples")


def free_name(name: str, taken: Container[str]) -> str:
    """``name``, or the first of ``name_2``, ``name_3``, ... that is not taken."""
    candidate, number = name, 2
    while candidate in taken:
        tail = f"_{number}"
        candidate, number = f"{name[: MAX_NAME - len(tail)]}{tail}", number + 1
    return candidate


def safe_properties(schema: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """``schema`` with usable names of its own properties, and new name -> original.

    Conditions, requirements and references to a renamed property follow it.
    """
    properties = schema.get("properties", {})
    odd = [name for name in properties if not _PROPERTY.fullmatch(name)]
    if not odd:
        return schema, {}
    taken = set(properties) - set(odd)
    renamed: dict[str, str] = {}
    for name in odd:
        renamed[name] = free_name(safe_name(name), taken)
        taken.add(renamed[name])
    moved = {f"#/properties/{_escaped(old)}": f"#/properties/{renamed[old]}" for old in odd}
    document = _repointed(_renamed(schema, renamed), moved)
    return document, {new: old for old, new in renamed.items()}


def _renamed(schema: Any, names: dict[str, str]) -> Any:
    """The schema of an object with its property names replaced wherever it lists them."""
    if not isinstance(schema, dict):
        return schema
    out = dict(schema)
    for key in ("properties", "dependentRequired", "dependentSchemas"):
        if isinstance(out.get(key), dict):
            out[key] = {names.get(name, name): item for name, item in out[key].items()}
    if isinstance(out.get("required"), list):
        out["required"] = [names.get(name, name) for name in out["required"]]
    for name, listed in out.get("dependentRequired", {}).items():
        out["dependentRequired"][name] = [names.get(item, item) for item in listed]
    for name, inner in out.get("dependentSchemas", {}).items():
        out["dependentSchemas"][name] = _renamed(inner, names)
    for key in _SAME_OBJECT:
        if isinstance(out.get(key), list):
            out[key] = [_renamed(item, names) for item in out[key]]
        elif key in out:
            out[key] = _renamed(out[key], names)
    return out


def _repointed(node: Any, moved: dict[str, str]) -> Any:
    if isinstance(node, list):
        return [_repointed(item, moved) for item in node]
    if not isinstance(node, dict):
        return node
    out = {k: item if k in _DATA else _repointed(item, moved) for k, item in node.items()}
    pointer = out.get("$ref")
    if isinstance(pointer, str):
        for old, new in moved.items():
            if pointer == old or pointer.startswith(f"{old}/"):
                out["$ref"] = new + pointer[len(old) :]
                break
    return out


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
