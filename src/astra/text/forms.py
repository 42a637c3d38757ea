"""Forms that one value can be written in: dates, clock times, names and amounts.

A tool may want a value in another form than the question has it. ``written`` puts a value into a
form, ``readings`` goes the other way: which values a written one can stand for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, time
from enum import StrEnum
from typing import Any

_ISO = re.compile(r"\d{4}-\d{2}-\d{2}")
_SLASHED = re.compile(r"(\d{2})/(\d{2})/(\d{4})")
_DIGITS = re.compile(r"\d{8}")
_NAME = re.compile(r"[^\W\d_][\w'-]*(?: [^\W\d_][\w'-]*)+")
_LAST_FIRST = re.compile(r"([\w'-]+(?: [\w'-]+)*), ([\w'-]+(?: [\w'-]+)*)")
_CODE = re.compile(r"[^\W_]+(?:[-_][^\W_]+)+")
_CLOCK = re.compile(
    r"(?<![\w:.])(\d{1,2})(?::(\d{2}))?(?:\s*([ap])\.?m\b\.?|(?<=:\d\d)(?![\w:]))", re.IGNORECASE
)


class Form(StrEnum):
    """How a value is written where it is not written as a question says it."""

    DAY_FIRST = "day_first"  # 2024-01-31 is 31/01/2024
    MONTH_FIRST = "month_first"  # 01/31/2024
    DIGITS = "digits"  # 20240131
    LAST_FIRST = "last_first"  # Ada Finch is Finch, Ada
    CODE = "code"  # Amber Cove is AMBER-COVE
    HUNDREDTHS = "hundredths"  # 12.5 is 1250
    HOURS_24 = "hours_24"  # 7:00 PM is 19:00
    HOURS_12 = "hours_12"  # 19:00 is 7:00 PM


_DATES = {Form.DAY_FIRST: "%d/%m/%Y", Form.MONTH_FIRST: "%m/%d/%Y", Form.DIGITS: "%Y%m%d"}


def written(value: Any, form: Form) -> Any:
    """``value`` in the form; None where it has none: dates are ISO text, names several words."""
    if isinstance(value, bool):
        return None
    if form is Form.HUNDREDTHS:
        hundredths = value * 100 if isinstance(value, int | float) else None
        return None if hundredths is None else _whole(hundredths)
    if not isinstance(value, str):
        return None
    if form in _DATES:
        return _dated(value, _DATES[form])
    if form in (Form.HOURS_24, Form.HOURS_12):
        at = clock(value)
        return None if at is None else _timed(at, form)
    if not _NAME.fullmatch(value):
        return None
    if form is Form.CODE:
        return value.upper().replace(" ", "-")
    first, last = value.rsplit(" ", 1)
    return f"{last}, {first}"


def readings(value: Any) -> tuple[Any, ...]:
    """What a written value can stand for, itself first; more than one where a form is ambiguous.

    A name's case cannot be read off a code: those are in lower case.
    """
    return (value, *dict.fromkeys(_readings(value)))


def _readings(value: Any) -> Iterator[Any]:
    if isinstance(value, bool):
        return
    if isinstance(value, int):
        yield _whole(value / 100)
    if not isinstance(value, str):
        return
    if match := _SLASHED.fullmatch(value):
        first, second, year = match.groups()
        yield from _days((year, second, first), (year, first, second))
    elif (at := clock(value)) is not None:
        timed = (_timed(at, form) for form in (Form.HOURS_24, Form.HOURS_12))
        yield from (one for one in timed if one != value)
    elif _DIGITS.fullmatch(value):
        yield from _days((value[:4], value[4:6], value[6:]))
    elif match := _LAST_FIRST.fullmatch(value):
        yield f"{match[2]} {match[1]}"
    elif _CODE.fullmatch(value) and not _ISO.fullmatch(value):
        yield re.sub(r"[-_]", " ", value).lower()


def _days(*dates: tuple[str, str, str]) -> Iterator[str]:
    for parts in dates:
        with suppress(ValueError):
            yield date.fromisoformat("-".join(parts)).isoformat()


def clock(value: str) -> time | None:
    """The time of day that a value is, with minutes or "am" and "pm"; None where it is none."""
    match = _CLOCK.fullmatch(value)
    return _time(match) if match else None


def clocks_in(text: str) -> set[time]:
    """The times of day that a text writes."""
    return {at for match in _CLOCK.finditer(text) if (at := _time(match)) is not None}


def _time(match: re.Match[str]) -> time | None:
    hour, minute, half = int(match[1]), int(match[2] or 0), (match[3] or "").lower()
    if half and not 1 <= hour <= 12:
        return None
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return time(hour, minute) if hour < 24 and minute < 60 else None


def _timed(at: time, form: Form) -> str:
    if form is Form.HOURS_24:
        return at.strftime("%H:%M")
    return f"{at.hour % 12 or 12}:{at.minute:02} {'PM' if at.hour >= 12 else 'AM'}"


def _dated(value: str, pattern: str) -> str | None:
    try:
        return date.fromisoformat(value).strftime(pattern) if _ISO.fullmatch(value) else None
    except ValueError:
        return None


def _whole(value: float) -> float | int:
    rounded = round(value, 6)
    return int(rounded) if rounded == int(rounded) else rounded
