"""Questions about a trace: which calls succeeded, what they returned, what the user agreed to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, cast

from astra.records.state import Row
from astra.records.world import EventKind, TraceEvent, UserAct


def succeeded(events: Sequence[TraceEvent], tool: str) -> Iterator[TraceEvent]:
    """The calls of a tool that did not fail, in order."""
    return (event for event in events if is_success(event) and event.tool == tool)


def is_success(event: TraceEvent) -> bool:
    """Whether an event is a call that did not fail."""
    return event.kind == EventKind.CALL and not event.failed


def records_in(result: Any) -> Iterator[Row]:
    """Every object that a tool's result holds, at any depth: records, and pages of them."""
    if isinstance(result, dict):
        yield cast("Row", result)
        result = list(cast("Row", result).values())
    if isinstance(result, list):
        for item in cast("list[Any]", result):
            yield from records_in(item)


def confirmed(events: Sequence[TraceEvent], writing: Collection[str]) -> bool:
    """Whether the user has agreed to something since the last successful call of a tool that
    writes."""
    for event in reversed(events):
        if event.kind == EventKind.USER and event.act == UserAct.CONFIRM:
            return True
        if is_success(event) and event.tool in writing:
            return False
    return False
