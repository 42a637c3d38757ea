"""Parameters that the root of a schema names elsewhere than in ``properties``, put there.

Callers read ``properties``: without this, parameters that stand in ``allOf``, ``anyOf`` or
``oneOf``, or with no ``properties`` around them, would be lost without a word.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from astra.text.inline import lookup
from astra.toolbank.validity import BRANCHES, MAPPINGS, SCHEMAS

MAX_MERGED = 2000
"""The most parameters that are looked at in one schema with branches, repeats included."""
MAX_OPEN = 20
"""The most references that are followed inside one another."""
_CHOICES = ("anyOf", "oneOf")
_SCHEMA_KEYS = ("type", "$ref", "enum", "const", "properties", "items", *sorted(BRANCHES))
_PLAIN = frozenset(("type", "properties", "required", "title", "description", "$schema", "$id"))
"""What a branch may hold that says no more than the parameters taken from it."""


class TooManyBranches(ValueError):
    """The branches of a schema name parameters beyond bounds."""


@dataclass(frozen=True)
class NamedParameters:
    """The parameters that a schema names, and those that a call needs whatever branch it takes."""

    properties: dict[str, Any] = field(default_factory=dict)
    required: dict[str, None] = field(default_factory=dict)


def flat_hoisted(document: dict[str, Any], repairs: list[str]) -> dict[str, Any]:
    """``{"city": {"type": "string"}, ...}`` as the properties of an object."""
    keywords = SCHEMAS | MAPPINGS | BRANCHES
    named = [key for key in document if key not in keywords and not key.startswith("$")]
    # Keywords such as `type` and `description` hold no schemas, so here they are parameters.
    if not named or len(named) < len(document) or not all(map(_is_schema, document.values())):
        return document
    repairs.append("parameters without properties around them hoisted")
    return {"type": "object", "properties": document}


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict) and any(key in value for key in _SCHEMA_KEYS)


def branches_merged(document: dict[str, Any], repairs: list[str]) -> dict[str, Any]:
    """The root with the parameters that only its branches name among its own.

    What ``allOf`` requires is required, and what every branch of a choice does. Branches stay
    where they say more than that. Raises TooManyBranches.
    """
    own = document.get("properties", {})
    if not isinstance(own, dict) or not any(key in document for key in ("allOf", *_CHOICES)):
        return document
    named = _Reader(document).named(document)
    if named.properties.keys() <= own.keys():
        return document
    repairs.append("parameters named in branches of the root merged")
    merged = {**document, "properties": named.properties, "required": list(named.required)}
    whole = document.get("allOf")
    if isinstance(whole, list):
        merged["allOf"] = [one for one in whole if not _says_no_more(one, document)]
        if not merged["allOf"]:
            del merged["allOf"]
    return merged


def _says_no_more(branch: Any, root: dict[str, Any]) -> bool:
    """Whether the parameters taken from a branch are all that it says."""
    pointer = branch.get("$ref") if isinstance(branch, dict) else None
    target = lookup(root, pointer) if isinstance(pointer, str) else {}
    if not isinstance(branch, dict) or not isinstance(target, dict):
        return False
    keys = target.keys() | (branch.keys() - {"$ref"})
    return keys <= _PLAIN and isinstance({**target, **branch}.get("properties", {}), dict)


class _Reader:
    """Reads what the schemas of one document name; what a reference names is read once."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._known: dict[str, NamedParameters] = {}
        self._open = 0
        self._left = MAX_MERGED

    def named(self, schema: Any) -> NamedParameters:
        """What a schema and its branches name; nothing for what is no schema."""
        if not isinstance(schema, dict):
            return NamedParameters()
        properties, required = schema.get("properties"), schema.get("required")
        texts = [one for one in _listed(required) if isinstance(one, str)]
        own = NamedParameters(
            properties if isinstance(properties, dict) else {}, dict.fromkeys(texts)
        )
        found = self._joined([own, self._referred(schema.get("$ref"))], "allOf")
        for key in ("allOf", *_CHOICES):
            if branches := _listed(schema.get(key)):
                chosen = self._joined([self.named(one) for one in branches], key)
                if key in _CHOICES:  # the schema around a choice narrows it, and is kept as it is
                    chosen = NamedParameters(chosen.properties | found.properties, chosen.required)
                found = self._joined([found, chosen], "allOf")
        return found

    def _referred(self, pointer: Any) -> NamedParameters:
        if not isinstance(pointer, str) or self._open >= MAX_OPEN:
            return NamedParameters()
        if pointer not in self._known:
            self._known[pointer] = NamedParameters()  # for a reference inside itself
            self._open += 1
            self._known[pointer] = self.named(lookup(self._root, pointer))
            self._open -= 1
        return self._known[pointer]

    def _joined(self, branches: list[NamedParameters], key: str) -> NamedParameters:
        """What the branches of ``key`` name together."""
        schemas: dict[str, list[Any]] = {}
        for branch in branches:
            self._left -= len(branch.properties)
            if self._left < 0:
                raise TooManyBranches(f"over {MAX_MERGED} parameters in branches")
            for name, schema in branch.properties.items():
                given = schemas.setdefault(name, [])
                given += [] if schema in given else [schema]
        both = "anyOf" if key in _CHOICES else "allOf"
        properties = {
            name: given[0] if len(given) == 1 else {both: given} for name, given in schemas.items()
        }
        required = dict.fromkeys(name for branch in branches for name in branch.required)
        if key in _CHOICES:
            common = set(required).intersection(*(branch.required for branch in branches))
            required = {name: None for name in required if name in common}
        return NamedParameters(properties, required)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
