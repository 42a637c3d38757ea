"""Values near a value, which lenient code takes for it and code that computes answers."""

from __future__ import annotations

import math
import re
from datetime import date, timedelta
from typing import Any

from astra.text.forms import clock

SHORTEST_NAME = 4
"""Characters of a text that is also tried without its last letter, and with one more."""
_COUNTED = re.compile(r"(?<!\d)\d{1,300}$")
"""A number at a text's end; a longer run of digits counts nothing, and int() may refuse it."""


def near_names(value: Any) -> tuple[str, ...]:
    """Other texts that lenient code takes for the text: without its last letter, which code that
    looks for a part of a name still finds; with one more, in which code that looks for names in a
    text finds it; between blanks; with a dash for its first blank or the other way round; with its
    words in another order; and with a number at its end one more, which code that counts answers.
    """
    if not isinstance(value, str) or len(value) < SHORTEST_NAME:
        return ()
    if as_date(value) is not None or clock(value) is not None:
        return ()
    last = re.search(r"\w(?=\W*$)", value)
    if last is None:
        return ()
    longer = value[: last.end()] + last[0] + value[last.end() :]
    levelled = re.sub(r"(?<=\w)[ -](?=\w)", _other_gap, value, count=1)
    first, _, rest = value.partition(" ")
    counted = _COUNTED.sub(lambda number: str(int(number[0]) + 1), value)
    near = (
        value[: last.start()],
        longer,
        f" {value} ",
        levelled,
        f"{rest} {first}".strip(),
        counted,
    )
    return tuple(text for text in dict.fromkeys(near) if text != value)


def _other_gap(gap: re.Match[str]) -> str:
    return " " if gap[0] == "-" else "-"


def shifted(value: Any) -> list[Any]:
    """Values near a number or a date, which code that computes will answer.

    What JSON or the calendar does not have is none of them.
    """
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        century = [value % 100] if value >= 1000 else []  # of a year its last two digits
        return [near for near in (value + 1, value * 2 + 3, *century) if _is_finite(near)]
    day = as_date(value)
    return [] if day is None else [*_days_from(day, 3), *_days_from(day, -11)]


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer that no float holds
        return False


def _days_from(day: date, days: int) -> list[str]:
    """The day so many days later, in a list; an empty one where the calendar ends before it."""
    try:
        return [(day + timedelta(days=days)).isoformat()]
    except OverflowError:
        return []


def as_date(value: Any) -> date | None:
    """The day that an ISO text states; None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        return date.fromisoformat(value)
    except ValueError:
        return None
