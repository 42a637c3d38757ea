"""Argument values that conform to a JSON Schema, drawn by rule.

Order of preference: constant or enumeration, examples, entity names (``x-entity``), format,
then small typed values; a text that misses its ``pattern`` is drawn from the pattern. Values are
short, so that a question can name them.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from referencing.exceptions import Unresolvable

from astra.records.base import canonical_json, content_id
from astra.text.names import ENTITY, Pool, draw_names
from astra.text.patterns import NoMatch, draw_match
from astra.text.schemas import schema_fault, validator_within

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

NAMES_PER_TYPE = 150
"""How many names an entity type draws from: a small policy learns to copy few names sooner."""
MAX_DEPTH = 6
MAX_CHARS = 200
"""The longest text that is drawn."""
_ATTEMPTS = 8
_WORD_LIST = (
    "apple basket candle desk engine flower guitar hammer island jacket kettle ladder mirror "
    "needle orange pencil rocket saddle table violin window"
)
_WORDS = tuple(_WORD_LIST.split())


class NoValue(ValueError):
    """No value that conforms to the schema was found; says which schema."""


@cache
def entity_names(kind: str, entity: str, pool: Pool = Pool.SERVERS) -> tuple[str, ...]:
    """The names that entity type ``entity`` (for example ``courier``) draws from."""
    rng = random.Random(int(content_id(["names", kind, entity, str(pool)]), 16))
    return tuple(draw_names(kind, pool, NAMES_PER_TYPE, rng))


def draw_value(schema: Any, rng: random.Random, name: str = "", root: Any = None) -> Any:
    """A value of property ``name`` that validates against ``schema``. Raises NoValue.

    ``root`` is the document that local ``$ref`` pointers resolve in (default: ``schema``).
    """
    root = schema if root is None else root
    checked = _validator(schema, root)
    for _ in range(_ATTEMPTS):
        try:
            value = _draw(schema, rng, name, root, 0)
            if checked is None or checked.is_valid(value):
                return value
        except (Unresolvable, RecursionError) as error:
            raise NoValue(f"schema of {name!r} cannot be resolved: {error}") from None
    raise NoValue(f"no value of {name!r} found for schema {str(schema)[:200]}")


def _validator(schema: Any, root: Any) -> Draft202012Validator | None:
    if isinstance(schema, bool):
        if not schema:
            raise NoValue("schema false admits no value")
        return None
    if not isinstance(schema, Mapping):
        raise NoValue(f"not a schema: {str(schema)[:100]}")
    try:
        text = canonical_json(schema)
        # References point into the root; without any, it is not compiled.
        context = canonical_json(root) if '"$ref"' in text and isinstance(root, Mapping) else text
    except (TypeError, ValueError, RecursionError) as error:
        raise NoValue(f"not a JSON document: {error}") from None
    return _compiled(text, context)


@lru_cache(maxsize=4096)
def _compiled(schema: str, root: str) -> Draft202012Validator:
    """The validator of a schema whose references point into ``root``, both as JSON."""
    document, context = json.loads(schema), json.loads(root)
    if fault := schema_fault(document) or schema_fault(context):
        raise NoValue(f"not a schema: {fault}")
    return validator_within(context, document)


def _draw(schema: Any, rng: random.Random, name: str, root: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise NoValue(f"schema of {name!r} is nested deeper than {MAX_DEPTH}")
    if not isinstance(schema, Mapping):
        return rng.choice(_WORDS)
    if "$ref" in schema:
        return _draw(resolve(schema["$ref"], root), rng, name, root, depth + 1)
    if "const" in schema:
        return schema["const"]
    for keyword in ("enum", "examples"):
        listed = schema.get(keyword)
        if isinstance(listed, list) and listed:
            return rng.choice([item for item in listed if item is not None] or listed)
    for keyword in ("anyOf", "oneOf"):
        branches = [b for b in schema.get(keyword, ()) if b != {"type": "null"}]
        if branches:
            return _draw({**_outside(schema), **rng.choice(branches)}, rng, name, root, depth + 1)
    if isinstance(schema.get("allOf"), list):
        merged: dict[str, Any] = _outside(schema)
        for branch in schema["allOf"]:
            part = resolve(branch["$ref"], root) if "$ref" in branch else branch
            merged.update(part)
        return _draw(merged, rng, name, root, depth + 1)
    return _typed(schema, _kind(schema), rng, name, root, depth)


def _outside(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in schema.items() if k not in ("anyOf", "oneOf", "allOf", "description")}


def resolve(pointer: Any, root: Any) -> Any:
    """What a local ``$ref`` points to. Raises NoValue for anything else."""
    if not isinstance(pointer, str) or not pointer.startswith("#"):
        raise NoValue(f"reference {pointer!r} is not local")
    node = root
    for part in pointer[1:].strip("/").split("/") if pointer != "#" else []:
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, Mapping) or key not in node:
            raise NoValue(f"reference {pointer!r} does not resolve")
        node = node[key]
    return node


def _kind(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), "null")
    if isinstance(kind, str):
        return kind
    return "object" if "properties" in schema else "array" if "items" in schema else "string"


def _typed(
    schema: Mapping[str, Any], kind: str, rng: random.Random, name: str, root: Any, depth: int
) -> Any:
    if kind == "string":
        return _string(schema, rng, name)
    if kind in ("integer", "number"):
        return _number(schema, kind, rng)
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "array":
        if schema.get("prefixItems"):
            return [_draw(item, rng, name, root, depth + 1) for item in schema["prefixItems"]]
        count = max(int(schema.get("minItems", 1)), 1)
        if count > 20:
            raise NoValue(f"{name!r} needs {count} items")
        return [_draw(schema.get("items", {}), rng, name, root, depth + 1) for _ in range(count)]
    if kind == "object":
        properties = schema.get("properties", {})
        wanted = schema.get("required") or list(properties)[:1]
        return {
            key: _draw(properties.get(key, {"type": "string"}), rng, key, root, depth + 1)
            for key in wanted
        }
    return None


def _string(schema: Mapping[str, Any], rng: random.Random, name: str) -> str:
    text = _plain_string(schema, rng, name)
    pattern = schema.get("pattern")
    if pattern is None or re.search(pattern, text):
        return text
    low, high = int(schema.get("minLength", 0)), int(schema.get("maxLength", MAX_CHARS))
    try:
        return draw_match(pattern, rng, low, high)
    except NoMatch as error:
        raise NoValue(f"{name!r}: {error}") from None


def _plain_string(schema: Mapping[str, Any], rng: random.Random, name: str) -> str:
    """A text of the format or a word, whatever its pattern."""
    if schema.get(ENTITY) in ("person", "thing"):
        return rng.choice(entity_names(schema[ENTITY], schema.get("title", name)))
    day = f"{rng.randint(2023, 2025)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    clock = f"{rng.randint(0, 23):02}:{rng.choice((0, 15, 30, 45)):02}"
    number = rng.randint(1, 99)
    word = rng.choice(_WORDS)
    by_format = {
        "date": day,
        "date-time": f"{day}T{clock}:00Z",
        "time": f"{clock}:00Z",
        "email": f"{word}{number}@example.com",
        "uri": f"https://example.com/{word}",
        "hostname": f"{word}.example.com",
        "ipv4": f"192.0.2.{number}",
        "uuid": f"00000000-0000-4000-8000-{number:012}",
    }
    if schema.get("format") in by_format:
        return by_format[schema["format"]]
    low, high = int(schema.get("minLength", 0)), int(schema.get("maxLength", MAX_CHARS))
    if low > MAX_CHARS:
        raise NoValue(f"{name!r} needs {low} characters")
    return (word + "s" * max(low - len(word), 0))[: max(high, 0)]


def _number(schema: Mapping[str, Any], kind: str, rng: random.Random) -> int | float:
    low, high = schema.get("minimum"), schema.get("maximum")
    if "exclusiveMinimum" in schema:
        low = max(schema["exclusiveMinimum"] + 1, low if low is not None else float("-inf"))
    if "exclusiveMaximum" in schema:
        high = min(schema["exclusiveMaximum"] - 1, high if high is not None else float("inf"))
    if low is None:
        low = 1 if high is None else high - 99
    if high is None:
        high = max(low + 99, 1)
    step = schema.get("multipleOf", 1)
    first, last = -(-low // step), high // step
    if first > last:
        if kind == "number":
            return (low + high) / 2
        raise NoValue(f"no integer between {low} and {high}")
    value = rng.randint(int(first), int(last)) * step
    return int(value) if kind == "integer" or float(value).is_integer() else value
