"""JSON Schemas of tools: whether a value conforms to one, and a made-up value that does."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from referencing import Registry

from astra.llm.protocol import ProviderError
from astra.records.base import canonical_json
from astra.text.values import NoValue, draw_value
from astra.text.verbs import singular


def violation(value: Any, schema: Mapping[str, Any]) -> str:
    """How ``value`` violates ``schema``; empty if it does not."""
    problem = best_match(_validator(canonical_json(dict(schema))).iter_errors(value))
    return "" if problem is None else problem.message[:300]


def conforms(value: Any, schema: Mapping[str, Any]) -> bool:
    return _validator(canonical_json(dict(schema))).is_valid(value)


@lru_cache(maxsize=4096)
def _validator(schema: str) -> Draft202012Validator:
    # An empty registry: a schema's remote $ref must never make the host fetch it.
    return Draft202012Validator(json.loads(schema), registry=Registry())


def value_for(schema: Mapping[str, Any], name: str, rng: random.Random) -> Any:
    """A made-up value of property ``name`` that conforms to the schema.

    Lists get two to four distinct items where the schema lets them. Raises ProviderError if no
    conforming value is found.
    """
    try:
        if schema.get("type") == "array" and isinstance(schema.get("items"), Mapping):
            listed = _items(schema, name, rng)
            if conforms(listed, schema):
                return listed
        return draw_value(schema, rng, name)
    except NoValue as error:
        raise ProviderError(f"the offline emulator has no value: {error}") from error


def _items(schema: Mapping[str, Any], name: str, rng: random.Random) -> list[Any]:
    low = int(schema.get("minItems", 2))
    count = rng.randint(low, max(low, int(schema.get("maxItems", 4))))
    values: list[Any] = []
    for _ in range(4 * count):
        value = draw_value(schema["items"], rng, singular(name))
        if value not in values and len(values) < count:
            values.append(value)
    return values
