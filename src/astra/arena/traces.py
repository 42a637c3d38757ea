"""Questions about a trace: which calls succeeded, what they returned, what the user agreed to."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, cast

from astra.records.state import Row
from astra.records.world import EventKind, TraceEvent, UserAct

_STOP = re.compile(
    r"\b(?:stop|hold on|never ?mind|forget (?:it|that|about)|(?:do not|don['’]t) (?:do|go|change|"
    r"touch|cancel|book|make|proceed|bother|want)|leave (?:it|everything|things) (?:as|alone)|"
    r"(?:take|took) (?:it|that|this) back|changed? my mind|on second thoughts?|rather not|"
    r"no longer want|not any ?more)\b|^\W*wait\b",
    re.I,
)
_NO = re.compile(r"\W*(?:no|nope|nah)\b(?!\W+(?:problem|thanks|thank you|that(?:['’]s| is) all|"
                 r"nothing|further|more|need))", re.I)  # fmt: skip
_MAY_I = re.compile(r"\b(?:may|shall|should|can) i\b|\b(?:agree|proceed|confirm|go (?:ahead|on))\b|"
                    r"\b(?:ok|okay|all right)\b\W*\?", re.I)  # fmt: skip


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
    writes, and has not taken it back."""
    for at in range(len(events) - 1, -1, -1):
        event = events[at]
        if event.kind == EventKind.USER:
            if event.act == UserAct.CONFIRM:
                return True
            if takes_back(events, at):
                return False
        if is_success(event) and event.tool in writing:
            return False
    return False


def takes_back(events: Sequence[TraceEvent], at: int) -> bool:
    """Whether a turn of the user takes back what they agreed to before: wants something else from
    now on, tells the agent to stop, or says no where it asks whether it may."""
    event = events[at]
    if event.act in (UserAct.CHANGE, UserAct.CONFIRM):
        return event.act == UserAct.CHANGE
    if event.act == UserAct.OPENING:
        return False
    asked = proposal(events, at)
    return _STOP.search(event.text) is not None or (
        _NO.match(event.text) is not None and _MAY_I.search(asked) is not None
    )


def proposal(events: Sequence[TraceEvent], at: int) -> str:
    """What the agent said between the user's turn before the one at a position and that."""
    said: list[str] = []
    for event in reversed(events[:at]):
        if event.kind == EventKind.USER:
            break
        if event.kind == EventKind.ASSISTANT:
            said.append(event.text)
    return "\n".join(reversed(said))
