"""When a made-up user asks."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from typing import Any

from astra.records.base import content_id

FIRST_HOUR, LAST_HOUR = 7, 22
"""The hours in which people ask; at night "today" and "tomorrow" mean different days to them."""


def draw_now(span: tuple[date, date] | None, *key: Any) -> str:
    """A day of the span and a time by day, as ``2026-03-10 14:05``: by a hash of ``key``.

    Empty without a span: nobody is told a date.
    """
    if span is None:
        return ""
    first, last = span
    minutes = (LAST_HOUR - FIRST_HOUR) * 60
    ticket = int(content_id(["now", *key]), 16)
    day, minute = divmod(ticket % (((last - first).days + 1) * minutes), minutes)
    asked = datetime.combine(first + timedelta(days=day), time(hour=FIRST_HOUR))
    return f"{asked + timedelta(minutes=minute):%Y-%m-%d %H:%M}"
