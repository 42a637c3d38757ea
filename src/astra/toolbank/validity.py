"""Whether a schema passes the 2020-12 metaschema, without walking the metaschema where possible.

Checking every tool against the metaschema costs more than all the rest of normalisation. Schemas
made of common keywords are recognised by rule; whatever the rule does not know goes to the full
check, so the rule may only ever be too strict.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

from astra.text.schemas import schema_fault

TYPES = frozenset(("string", "number", "integer", "boolean", "object", "array", "null"))
SCHEMAS = frozenset(
    (
        "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
        "unevaluatedItems", "unevaluatedProperties", "contentSchema",
    )
)  # fmt: skip
"""Keywords that hold a schema."""
MAPPINGS = frozenset(
    ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
)
"""Keywords that hold schemas by name."""
BRANCHES = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
"""Keywords that hold a list of schemas."""
COUNTS = frozenset(
    (
        "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
        "minContains", "maxContains",
    )
)  # fmt: skip
NUMBERS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))
FLAGS = frozenset(("uniqueItems", "deprecated", "readOnly", "writeOnly"))
TEXTS = frozenset(("title", "description", "format", "$comment"))
_ANYTHING = frozenset(("default", "const"))
_UNKNOWN_TO_THE_RULE = frozenset(
    (
        "$schema", "$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef",
        "$recursiveAnchor", "$vocabulary", "dependencies", "contentEncoding", "contentMediaType",
        "patternProperties",
    )
)  # fmt: skip
_POINTER = re.compile(r"#(?:/[A-Za-z0-9_.$~%-]*)*")


def problem(schema: dict[str, Any]) -> str:
    """What keeps ``schema`` from being JSON Schema 2020-12; empty if nothing does.

    Raises RecursionError for schemas nested beyond the interpreter's stack.
    """
    return "" if surely_valid(schema) else schema_fault(schema)


def surely_valid(schema: Any) -> bool:
    """True only for schemas that pass the metaschema; False where only the full check can say."""
    if isinstance(schema, bool):
        return True
    return isinstance(schema, dict) and all(map(_keyword, schema, schema.values()))


def _keyword(key: Any, value: Any) -> bool:
    if key in _UNKNOWN_TO_THE_RULE or not isinstance(key, str):
        return False
    if key == "type":
        return _types(value)
    if key in MAPPINGS:
        return isinstance(value, dict) and all(map(surely_valid, value.values()))
    if key in SCHEMAS:
        return surely_valid(value)
    if key in BRANCHES:
        return isinstance(value, list) and bool(value) and all(map(surely_valid, value))
    if key in TEXTS:
        return isinstance(value, str)
    if key in NUMBERS or key in COUNTS or key == "multipleOf":
        return _number(key, value)
    if key in FLAGS:
        return isinstance(value, bool)
    return _other(key, value)


def _other(key: str, value: Any) -> bool:
    if key == "required":
        return _names(value)
    if key in ("enum", "examples"):
        return isinstance(value, list)
    if key == "dependentRequired":
        return isinstance(value, dict) and all(map(_names, value.values()))
    if key == "$ref":
        return isinstance(value, str) and _POINTER.fullmatch(value) is not None
    if key == "pattern":
        return compiles(value)
    # Keywords outside the vocabulary may hold anything.
    return key in _ANYTHING or not key.startswith("$")


def _types(value: Any) -> bool:
    if isinstance(value, str):
        return value in TYPES
    return _names(value) and bool(value) and TYPES.issuperset(value)


def _names(value: Any) -> bool:
    return (
        isinstance(value, list)
        and all(isinstance(name, str) for name in value)
        and len(set(value)) == len(value)
    )


def _number(key: str, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if key in NUMBERS:
        return True
    return value > 0 if key == "multipleOf" else isinstance(value, int) and value >= 0


def compiles(pattern: Any) -> bool:
    """Whether ``pattern`` is a regular expression here."""
    try:
        with warnings.catch_warnings():  # of a syntax that may change; strangers wrote the pattern
            warnings.simplefilter("ignore", FutureWarning)
            re.compile(pattern)
    except (re.error, TypeError, RecursionError, OverflowError):
        return False
    return True
