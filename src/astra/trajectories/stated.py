"""What a task's user speaks of: the people and things that its plan takes from the question."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from astra.records.graph import ArgumentOrigin
from astra.records.task import Task
from astra.records.tool import Tool, ToolServer

MAX_NAME_CHARS = 120
"""A longer text is dictated and names nothing."""
MIN_ID = 1000
"""A smaller whole number is an amount (a count, a page) more often than a thing's number."""
_TIME = re.compile(r"\d{4}-\d{2}(-\d{2})?([T ].*)?|\d{1,2}:\d{2}(:\d{2})?")
_TIMES = ("date", "date-time", "time", "duration")

Thing = str | int | float
"""A name, an id, a place's coordinates."""


def stated_things(task: Task, server: ToolServer) -> tuple[Thing, ...]:
    """The people and things among the values that the user states, in the plan's order, once each.

    Choices of a list, dates, yes or no and small whole numbers are none: they say how something
    is done, not to what.
    """
    tools = {tool.name: tool for tool in server.tools}
    found = (
        value
        for step in task.plan
        if step.tool in tools
        for name, source in step.arguments.items()
        if source.origin is ArgumentOrigin.TASK
        for value in _things(source.value, _schema(tools[step.tool], name))
    )
    return tuple(dict.fromkeys(found))


def comparable(thing: Thing) -> str:
    """The same text for two spellings of one thing."""
    return " ".join(str(thing).casefold().split())


def _schema(tool: Tool, parameter: str) -> Mapping[str, Any]:
    schema = tool.parameters.get("properties", {}).get(parameter)
    return schema if isinstance(schema, Mapping) else {}


def _things(value: Any, schema: Mapping[str, Any]) -> Iterator[Thing]:
    if isinstance(value, list):
        items = schema.get("items")
        for item in value:
            yield from _things(item, items if isinstance(items, Mapping) else {})
    elif _is_thing(value) and not _says_how(schema):
        yield value


def _says_how(schema: Mapping[str, Any]) -> bool:
    return bool({"enum", "const"} & schema.keys()) or schema.get("format") in _TIMES


def _is_thing(value: Any) -> bool:
    if isinstance(value, str):
        return 0 < len(value.strip()) <= MAX_NAME_CHARS and not _TIME.fullmatch(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) >= MIN_ID or value != int(value)
