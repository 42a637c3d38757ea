"""Whether an agent can know a gold call: each value must stand in what it was told by then."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

from astra.envsynth.known import leaves_of
from astra.envsynth.static import Problem
from astra.records.tool import Tool
from astra.text.forms import readings
from astra.text.words import plain, stands_in

_WRITTEN_DAYS = (
    "%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d %B %Y", "%B %d, %Y", "%B %d %Y", "%d %b %Y",
    "%b %d, %Y",
)  # fmt: skip
_STARTS_AS_DATE = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[T ]|$)")
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip


def reach_problem(tool: Tool, arguments: Mapping[str, Any], told: Sequence[Any]) -> Problem | None:
    """Why an agent cannot know the gold arguments: text or a date that stands nowhere in ``told``.

    A value may be told in another form than the tool wants it (``text/forms.py``); of a date, year,
    month and day must be told. Numbers may be written in too many ways to be judged, and values of
    an enumeration stand in the document.
    """
    known = [str(value) for _, value in leaves_of(list(told)) if value is not None]
    for path, value in leaves_of(arguments):
        if not isinstance(value, str) or _schema(tool.parameters, path).keys() & {"enum", "const"}:
            continue
        if not any(_is_told(reading, known) for reading in readings(value)):
            name = ".".join(str(step) for step in path)
            return "unreachable_argument", f"{name}: {value!r} is in no question or earlier answer"
    return None


def _schema(schema: Mapping[str, Any], path: Sequence[Any]) -> Mapping[str, Any]:
    """The schema of the value at a path; an empty one where none is stated."""
    for step in path:
        inner = schema.get("properties", {}).get(step) if isinstance(step, str) else None
        schema = inner if inner is not None else schema.get("items", {})
        if not isinstance(schema, Mapping):
            return {}
    return schema


def _is_told(value: Any, known: Sequence[str]) -> bool:
    if not isinstance(value, str):
        return False  # the readings of text are text
    day = _day(value)
    if day is None:
        return any(plain(value) in plain(text) for text in known)
    return any(plain(value) in plain(text) for text in known) or _is_told_day(day, known)


def _is_told_day(day: date, known: Sequence[str]) -> bool:
    """Whether the day is told: written in full, or its month and day in one text, and its year."""
    years = any(stands_in(str(day.year), text) or f"{day.year}年" in text for text in known)
    return any(_dates(text, day) for text in known) or (
        years and any(_month_and_day(plain(text), day) for text in known)
    )


def _dates(text: str, day: date) -> bool:
    """Whether the text writes the day with digits, year included."""
    forms = ("%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%Y/%m/%d", "%Y%m%d")
    loose = {day.strftime(form) for form in forms}
    loose |= {f"{day.day}/{day.month}/{day.year}", f"{day.month}/{day.day}/{day.year}"}
    loose |= {f"{day.day}.{day.month}.{day.year}", f"{day.year}年{day.month}月{day.day}日"}
    return any(stands_in(form, text) for form in loose)


def _month_and_day(text: str, day: date) -> bool:
    """Whether the text names the month, and the day beside it."""
    if f"{day.month}月{day.day}" in text:
        return True
    month = _MONTHS[day.month - 1]
    named = rf"(?:{month}|{month[:3]}\.?)"
    counted = rf"0?{day.day}(?:st|nd|rd|th)?"
    around = rf"\b(?:{named}\W+(?:the\W+)?{counted}|{counted}\W+(?:of\W+)?{named})(?!\w)"
    return re.search(around, text) is not None


def _day(value: str) -> date | None:
    """The day that a value writes in full; None where it writes none."""
    if match := _STARTS_AS_DATE.match(value):
        value = match[1]
    for form in _WRITTEN_DAYS:
        try:
            return datetime.strptime(value, form).date()
        except ValueError:
            continue
    return None
