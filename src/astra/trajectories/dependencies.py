"""Planned dependencies between calls, and which of them an episode's calls kept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from astra.records.base import canonical_json
from astra.records.graph import ArgumentOrigin, ArgumentSource, ChainStep
from astra.records.message import CallStatus, ExecutedCall, ToolResult
from astra.text.words import stands_in
from astra.trajectories.results import ReadError, follow, parse_result, scalar_text

_NEVER_MADE = frozenset({CallStatus.MALFORMED, CallStatus.UNKNOWN_TOOL, CallStatus.REFUSED})


class Dependency(NamedTuple):
    """An argument of a planned step that comes from an earlier step's result."""

    step: int
    argument: str
    held: bool


def held_dependencies(
    plan: Sequence[ChainStep], calls: Sequence[ExecutedCall]
) -> tuple[Dependency, ...]:
    """All planned dependencies. One is held if an earlier turn's call of the planned tool
    succeeded and its result holds, at the planned path, the value that a call of this step's
    tool was given.

    Any item of a list at the path will do. Where the path is free (empty), or nothing is there
    (the result is a text or of another shape), the value has to stand in the result's text as a
    whole word.
    """
    return tuple(
        Dependency(number, name, _held(step.tool, name, plan[source.step].tool, source, calls))
        for number, step in enumerate(plan)
        for name, source in step.arguments.items()
        if source.origin is ArgumentOrigin.OUTPUT and source.step is not None
    )


def _held(
    tool: str, name: str, giver: str, source: ArgumentSource, calls: Sequence[ExecutedCall]
) -> bool:
    made = [c for c in calls if c.call.name == tool and c.result.status not in _NEVER_MADE]
    # The arguments of a call that was made are an object.
    takers = [(call.turn, json.loads(call.call.arguments)) for call in made]
    givers = [
        call for call in calls if call.call.name == giver and call.result.status is CallStatus.OK
    ]
    return any(
        earlier.turn < turn
        and name in arguments
        and _holds(earlier.result, source.path, arguments[name])
        for turn, arguments in takers
        for earlier in givers
    )


def _holds(result: ToolResult, path: Sequence[str | int], value: Any) -> bool:
    typed = parse_result(result.content) if result.value is None else result.value
    found = [_text(item) for item in _at(typed, path)]
    if _text(value) in found:
        return True
    parts: list[Any] = value if isinstance(value, list) else [value]
    if path and found:
        return bool(parts) and all(_text(part) in found for part in parts)
    return bool(parts) and all(stands_in(_text(part), result.content) for part in parts)


def _text(value: Any) -> str:
    """The same text for a number and its digits, as tools take the one for the other."""
    if isinstance(value, int | float):
        return scalar_text(value)
    return value if isinstance(value, str) else canonical_json(value)


def _at(value: Any, path: Sequence[str | int]) -> Iterator[Any]:
    """The values at a path; a number in it stands for every item of a list."""
    if not path:
        yield value
        return
    if isinstance(path[0], int) and isinstance(value, list):
        for item in value:
            yield from _at(item, path[1:])
        return
    try:
        part = follow(value, path[:1])
    except ReadError:
        return
    yield from _at(part, path[1:])
