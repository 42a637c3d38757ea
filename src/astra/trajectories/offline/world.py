"""A made-up world behind document-only tools, for the offline emulator.

Nothing is stored: an attribute of given arguments is a seeded draw from (server, attribute,
arguments), so that every tool, call and episode of a server agrees on it. Writes of the
episode are laid over it: what was set reads back, what was deleted is gone, what was created
is listed and counted.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from astra.llm.protocol import ProviderError
from astra.records.base import canonical_json, content_id
from astra.text.schemas import conforms
from astra.text.values import NoValue, draw_value
from astra.text.verbs import CREATES, DELETES, UPDATES, is_write, noun_of, singular, verb_of

UNKNOWN_SHARE = 0.01
"""The share of (parameter, entity) pairs that a server has never heard of."""
Event = Mapping[str, Any]
"""An earlier call of the episode: tool, arguments, status, result, error."""


class EmulatedWorld:
    """The server's data as one episode sees it after ``events``."""

    def __init__(self, server_id: str, events: Sequence[Event]) -> None:
        self._server_id = server_id
        self._events = [event for event in events if event["status"] == "ok"]

    def missing(self, tool: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
        """Why the call fails, if an entity is unknown or was deleted; else an empty string."""
        for name, value in sorted(arguments.items()):
            if not isinstance(value, str):
                continue
            deleted = any(
                verb_of(event["tool"]) in DELETES and event["arguments"].get(name) == value
                for event in self._events
            )
            if deleted and verb_of(tool["name"]) not in CREATES:
                return f"no {name} named {value}"
            if _is_entity(tool, name) and self._unheard(name, value):
                return f"no {name} named {value}"
        return ""

    def read(
        self,
        tool: Mapping[str, Any],
        result_schema: Mapping[str, Any] | None,
        arguments: Mapping[str, Any],
    ) -> Any:
        """The result of a call that does not fail, conforming to the schema; a text without one."""
        schema = result_schema or {"type": "string"}
        noun = str(schema.get("title") or noun_of(tool["name"]) or tool["name"])
        return self._value(schema, noun, noun_of(tool["name"]), arguments, is_write(tool["name"]))

    def _value(
        self,
        schema: Mapping[str, Any],
        attribute: str,
        noun: str,
        arguments: Mapping[str, Any],
        writing: bool,
    ) -> Any:
        """The value of ``attribute``: as given, else as written before, else drawn."""
        properties = schema.get("properties")
        if isinstance(properties, dict) and "enum" not in schema and "const" not in schema:
            return {
                name: self._value(inner, name, noun, arguments, writing)
                for name, inner in properties.items()
                if isinstance(inner, dict)
            }
        if attribute in arguments and conforms(arguments[attribute], schema):
            return arguments[attribute]
        if not writing:
            written = self._written(attribute, noun, arguments)
            if written is not None and conforms(written, schema):
                return written
        value = _value_for(schema, attribute, self._rng(attribute, arguments))
        return value if writing else self._adjusted(value, schema, noun, arguments)

    def _rng(self, attribute: str, arguments: Mapping[str, Any]) -> random.Random:
        key = [self._server_id, attribute, canonical_json(dict(arguments))]
        return random.Random(int(content_id(key), 16))

    def _unheard(self, name: str, value: str) -> bool:
        """Whether the server knows no entity of that name; what the episode wrote, it knows."""
        mentioned = any(
            value in canonical_json([event["arguments"], event["result"]]) for event in self._events
        )
        if mentioned:
            return False
        rng = random.Random(int(content_id(["unheard", self._server_id, name, value]), 16))
        return rng.random() < UNKNOWN_SHARE

    def _written(self, attribute: str, noun: str, arguments: Mapping[str, Any]) -> Any:
        """What the newest matching update or creation set ``attribute`` to, else None."""
        for event in reversed(self._events):
            verb = verb_of(event["tool"])
            if verb not in UPDATES and verb not in CREATES:
                continue
            given: Mapping[str, Any] = event["arguments"]
            if not _same_subject(given, arguments):
                continue
            fresh = {key: value for key, value in given.items() if key not in arguments}
            if attribute in fresh:
                return fresh[attribute]
            if len(fresh) == 1 and noun_of(event["tool"]) in (noun, attribute):
                return next(iter(fresh.values()))
        return None

    def _adjusted(
        self, value: Any, schema: Mapping[str, Any], noun: str, arguments: Mapping[str, Any]
    ) -> Any:
        """Lists and counts of ``noun`` after the episode's creations and deletions."""
        if not isinstance(value, (list, int)) or isinstance(value, bool):
            return value
        kind = singular(noun.split("_")[-1])
        for event in self._events:
            verb = verb_of(event["tool"])
            if verb not in CREATES | DELETES or noun_of(event["tool"]).split("_")[-1] != kind:
                continue
            given: Mapping[str, Any] = event["arguments"]
            if any(key in given and given[key] != wanted for key, wanted in arguments.items()):
                continue
            changed = _apply(
                value, verb in CREATES, given.get(kind, next(iter(given.values()), None))
            )
            value = changed if conforms(changed, schema) else value
        return value


def _apply(value: list[Any] | int, created: bool, subject: Any) -> list[Any] | int:
    if isinstance(value, int):
        return value + 1 if created else max(0, value - 1)
    remaining = [item for item in value if item != subject]
    return [*remaining, subject] if created else remaining


def _same_subject(given: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    shared = [key for key in asked if key in given]
    return bool(shared) and all(given[key] == asked[key] for key in shared)


def _is_entity(tool: Mapping[str, Any], name: str) -> bool:
    properties: Mapping[str, Any] = tool["parameters"].get("properties", {})
    return isinstance(properties.get(name), dict) and "x-entity" in properties[name]


def _value_for(schema: Mapping[str, Any], name: str, rng: random.Random) -> Any:
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
