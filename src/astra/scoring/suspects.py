"""Arguments whose value nobody stated word for word. The rule marks them; a judge says why.

A value may come from what the user wrote, from what the agent was told, from results of earlier
rounds, or from the tool's schema. Most of the rest is sound: coordinates of a place that was
named, a date counted from today, a search text. So a mark is a question, not a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from astra.records.base import canonical_json
from astra.scoring.lexical import joined, legible, occurs, tokens
from astra.scoring.view import Place, View, numbered

_UNIT_WORDS = (
    "celsius fahrenheit kelvin metric imperial c f k °c °f mm cm m km meter meters kilometer "
    "kilometers mile miles mi ft foot feet inch inches yard yards mg g kg gram grams kilogram "
    "kilograms oz ounce ounces lb lbs pound pounds ml l liter liters gallon gallons second "
    "seconds minute minutes hour hours day days week weeks month months year years percent %"
)
UNITS = frozenset(_UNIT_WORDS.split())
"""Names of units: which one to ask for is a choice, whatever words the user has for it."""
_DEEPEST = 16
"""How deep a value is looked into. A schema may contain itself, and a model may write anything."""


@dataclass(frozen=True)
class Suspect:
    """An argument with values that were not found."""

    place: Place
    argument: str
    unstated: tuple[Any, ...]
    """The values not found: the argument itself, or parts of it."""


def suspects(view: View) -> tuple[Suspect, ...]:
    """The arguments of all calls with values that stand nowhere, in order.

    Booleans, null, empty texts and names of units are never marked.
    """
    schemas = {tool["name"]: tool["parameters"] for tool in view["tools"]}
    stated = [view["told"], view["question"]]
    found: list[Suspect] = []
    for number, round_ in enumerate(view["rounds"]):
        stated.append(round_["user"])
        source = joined(stated)
        words = tokens(source)
        for position, call in enumerate(round_["calls"]):
            schema = schemas.get(call["tool"], {})
            arguments = call["arguments"] if isinstance(call["arguments"], dict) else {}
            for name, value in arguments.items():
                unnamed = _unnamed(value, _parameter(schema, name), schema)
                missing = [
                    part
                    for part in unnamed
                    if not (isinstance(part, str) and part.casefold() in UNITS)
                    and not occurs(part, source, words)
                ]
                if missing:
                    found.append(Suspect((number, position), name, tuple(missing)))
        # Calls of one round run together: none of them may know another's result.
        stated += [legible(call["result"]) for call in round_["calls"]]
    return tuple(found)


def shown(suspects: Iterable[Suspect]) -> list[dict[str, Any]]:
    """Suspects as a judge reads them, numbered from 1."""
    return [
        {
            "value": number,
            "call": numbered(suspect.place),
            "argument": suspect.argument,
            "unstated": list(suspect.unstated),
        }
        for number, suspect in enumerate(suspects, start=1)
    ]


def _unnamed(value: Any, schema: Any, root: Any, depth: int = 0) -> Iterator[Any]:
    """The single values inside ``value`` that its schema does not name, down to ``_DEEPEST``."""
    if depth > _DEEPEST:
        return
    branches = list(_branches(schema, root, depth))
    if any(_names(branch, value) for branch in branches):
        return
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _unnamed(inner, _within(branches, name), root, depth + 1)
    elif isinstance(value, list):
        items = {"anyOf": [part for branch in branches for part in _items(branch)]}
        for inner in value:
            yield from _unnamed(inner, items, root, depth + 1)
    else:
        yield value


def _parameter(schema: Any, name: str) -> Any:
    return _within(list(_branches(schema, schema)), name)


def _branches(schema: Any, root: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """The schema with all that it refers to or is composed of, each on its own."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return
    yield schema
    for key in ("anyOf", "oneOf", "allOf"):
        for part in schema.get(key) or ():
            yield from _branches(part, root, depth + 1)
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        yield from _branches(_referred(root, reference), root, depth + 1)


def _referred(root: Any, reference: str) -> Any:
    for step in reference.removeprefix("#/").split("/"):
        root = root.get(step) if isinstance(root, Mapping) else None
    return root


def _within(branches: Iterable[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """What the schemas of an object say of one of its members."""
    members: list[Any] = []
    for branch in branches:
        properties = branch.get("properties")
        if isinstance(properties, Mapping) and name in properties:
            members.append(properties[name])
        else:
            members.append(branch.get("additionalProperties"))
    return {"anyOf": members}


def _items(branch: Mapping[str, Any]) -> list[Any]:
    prefix = branch.get("prefixItems")
    return [branch.get("items"), *(prefix if isinstance(prefix, list) else ())]


def _names(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether one of the schema's keywords holds the value itself."""
    literals = [schema[key] for key in ("default", "const") if key in schema]
    for key in ("enum", "examples"):
        listed = schema.get(key)
        literals += listed if isinstance(listed, list) else []
    # As JSON, true is not 1.
    return any(canonical_json(literal) == canonical_json(value) for literal in literals)
