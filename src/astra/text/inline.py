"""What formats of API descriptions share: references inlined, and a body's fields as parameters."""

from __future__ import annotations

from typing import Any

MAX_DEPTH = 6
"""Most references that are inlined inside one another."""
MAX_NODES = 20_000
"""Most nodes of an operation with its references inlined: some refer to themselves without end."""


class Inliner:
    """Copies of nodes with local references replaced by what they name, within bounds.

    A reference inside itself, beyond ``MAX_DEPTH`` others, or past ``MAX_NODES`` becomes ``{}``.
    A description beside a reference stands in for that of what it names.
    """

    def __init__(self, document: Any) -> None:
        self.document = document
        self.notes: list[str] = []
        self._left = MAX_NODES
        self._open: list[str] = []

    def __call__(self, node: Any) -> Any:
        return self._copy(node, 0)

    def _copy(self, node: Any, depth: int) -> Any:
        if not isinstance(node, dict | list):
            return node
        self._left -= len(node)
        if self._left < 0 or depth >= MAX_DEPTH * 3:
            return self._cut("nested or large beyond bounds")
        if isinstance(node, list):
            return [self._copy(item, depth + 1) for item in node]
        pointer = node.get("$ref")
        if not isinstance(pointer, str):
            return {
                key: self._copy(item, depth + 1) if isinstance(item, dict | list) else item
                for key, item in node.items()
            }
        copied = self._target(pointer, depth)
        described = node.get("description")
        if isinstance(copied, dict) and isinstance(described, str):
            return copied | {"description": described}
        return copied

    def _target(self, pointer: str, depth: int) -> Any:
        if pointer in self._open or len(self._open) >= MAX_DEPTH:
            return self._cut("a recursive reference")
        self._open.append(pointer)
        try:
            return self._copy(resolved(pointer, self.document), depth + 1)
        finally:
            self._open.pop()

    def _cut(self, why: str) -> dict[str, Any]:
        note = f"schema cut: {why}"
        if note not in self.notes:
            self.notes.append(note)
        return {}


def resolved(pointer: str, document: Any) -> Any:
    """What a local reference names; an empty schema where it names nothing."""
    node = lookup(document, pointer)
    return {} if node is None else node


def add_body(schema: Any, needed: Any, properties: dict[str, Any], required: list[str]) -> None:
    """Add a body's own properties to a call's, or the whole as ``body`` where names collide."""
    if not isinstance(schema, dict):
        return
    inner = schema.get("properties")
    if isinstance(inner, dict) and inner and not set(inner) & set(properties):
        properties.update(inner)
        listed = schema.get("required")
        required += listed if isinstance(listed, list) and needed is not False else []
        return
    properties["body"] = schema
    if needed is True:
        required.append("body")


def lookup(root: Any, pointer: str) -> Any:
    """What a local pointer names in ``root``, list positions included; None if nothing."""
    if not pointer.startswith("#/"):
        return None
    node = root
    for part in pointer[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        elif isinstance(node, dict) and key in node:
            node = node[key]
        else:
            return None
    return node
