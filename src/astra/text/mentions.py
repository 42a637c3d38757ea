"""Whether a text says a value: by meaning and as a whole, not as a run of characters.

A number may stand in words, a date or time in any usual form, a name in any case. ``1`` is not
said by ``2021`` or ``pkr002``, and a date with a year not by a day and month alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from astra.text.figures import (
    HAN_DIGITS,
    MEASURES,
    MONTHS,
    SIZES,
    canonical,
    dates,
    spelled_numbers,
)
from astra.text.figures import plain as plain_number
from astra.text.words import CJK, numbers, plain, says, words

LEAST_TYPO = 6
"""How many letters a word has at least that a typo leaves recognisable."""
_NUMERIC = re.compile(r"[-+]?\d+(?:\.\d+)?")
_HAN_SIGNS = "".join(HAN_DIGITS) + "十"
_NO_NUMBER = re.compile(
    rf"[^\W\d{CJK}][^\W{CJK}]*\d[^\W{CJK}]*"  # a code: pkr002
    rf"|\d+(?:[.,]\d+)*(?=[a-z])(?!(?:{'|'.join(SIZES)})\b)"  # 25km
    r"|(?<!\d)\d+(?:(?:[-/:]\d+)+|(?:\.\d+){2,})"  # a date, time, range or version
    r"|\b(?:which|any|each|that|this|no) one\b|\bone of\b"
    rf"|(?<=[统唯同第万])一(?![十百千])|(?<![{_HAN_SIGNS}])一(?![{_HAN_SIGNS}百千万亿{MEASURES}])",
    re.IGNORECASE,
)
"""What holds digits, or words for numbers, and says none."""
_WITH_UNIT = re.compile(rf"(?<![^\W{CJK}])(?<![-.,/:])(\d+(?:\.\d+)?)(?=[a-z]{{1,9}}\b)", re.I)
_MONTH = "|".join([*MONTHS, *(month[:3] for month in MONTHS), "sept"])
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?\b"
_DAYS = (
    re.compile(rf"\b(?P<month>{_MONTH})\.? (?:the )?{_DAY}", re.IGNORECASE),
    re.compile(rf"\b{_DAY} (?:of )?(?P<month>{_MONTH})\b", re.IGNORECASE),
    re.compile(r"(?<![\d/.])(?P<month>\d{1,2})/(?P<day>\d{1,2})(?!\d)"),
    re.compile(r"(?P<month>\d{1,2})月(?P<day>\d{1,2})[日号]"),
)
"""Forms of a day and month, whether or not a year follows."""
_LATER_DAY = re.compile(rf"(?:\bthe |\bto |\btill |\buntil |[-–—至到] ?){_DAY}(?!/)", re.IGNORECASE)
"""A second day of a range, whose month has been said."""
_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:[T ](\d{2}:\d{2}))?(?::\d{2})?Z?")
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_TIME = re.compile(
    r"(?P<part>上午|早上|凌晨|中午|下午|傍晚|晚上|夜里|[半深]夜|(?<=[今明昨当每])晚)?"
    r"(?<!\d)(?P<zh_hour>\d{1,2})[点时](?:(?P<zh_minute>\d{2}|\d(?=分))分?|(?P<zh_half>半))?"
    r"|(?<![\w:.])(?P<hour>\d{1,2})(?::(?P<minute>\d{2})(?::\d{2})?)?\s?(?P<half>[ap]\.?m\b)?",
    re.IGNORECASE,
)
_AFTER_NOON = {
    "上午": range(0), "早上": range(0), "凌晨": range(0), "中午": range(10), "下午": range(12),
    "傍晚": range(12),
}  # fmt: skip
"""Part of the day -> which hours, of twelve, lie after noon."""
_EVENING = range(5, 12)
"""Those of any night: 晚上12点 is midnight."""


def mentions(text: str, value: Any) -> bool:
    """Whether ``text`` says ``value``, a JSON scalar."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return plain_number(value) in _numbers(text)
    written = str(value).strip()
    if _NUMERIC.fullmatch(written):
        return canonical(written) in _numbers(text)
    if says(written, text):
        return True
    if match := _ISO.fullmatch(written):
        return _says_day(text, written) and (not match[4] or _says_time(text, match[4]))
    return _says_day(text, written) or _says_time(text, written)


def misspells(text: str, value: Any, others: Iterable[Any] = ()) -> bool:
    """Whether ``text`` says ``value`` but for a letter too many, too few, wrong or swapped.

    Digits and short words are never misspelt. Where the text says one of ``others`` instead, that
    one is meant.
    """
    wanted, said = words(plain(str(value))), words(plain(text))
    runs = (said[at : at + len(wanted)] for at in range(len(said) - len(wanted) + 1))
    found = [run for run in runs if wanted and all(map(_alike, run, wanted))]
    meant = {tuple(words(plain(str(other)))) for other in others if other != value}
    return any(tuple(run) not in meant for run in found)


def _alike(word: str, wanted: str) -> bool:
    if word == wanted:
        return True
    long_enough = min(len(word), len(wanted)) >= LEAST_TYPO
    return long_enough and word.isalpha() and wanted.isalpha() and _one_slip(word, wanted)


def _one_slip(left: str, right: str) -> bool:
    """Whether one letter added, left out, replaced or swapped with its neighbour tells them."""
    if len(left) > len(right):
        left, right = right, left
    at = next((n for n, letter in enumerate(left) if letter != right[n]), len(left))
    if len(left) < len(right):
        return len(right) - len(left) == 1 and left[at:] == right[at + 1 :]
    swapped = left[at : at + 2] == right[at : at + 2][::-1] and left[at + 2 :] == right[at + 2 :]
    return swapped or left[at + 1 :] == right[at + 1 :]


@lru_cache(maxsize=64)
def _numbers(text: str) -> frozenset[str]:
    """The numbers that a text says as wholes, in canonical form."""
    whole = (canonical(format(number, "f")) for number in numbers(text))
    with_unit = (canonical(number) for number in _WITH_UNIT.findall(text))
    return frozenset(whole) | frozenset(with_unit) | spelled_numbers(_NO_NUMBER.sub(" ", text))


def _says_day(text: str, written: str) -> bool:
    """Whether a text says the day that ``written`` is; its year too, where it has one."""
    if not (days := _days(written)):
        return False
    if full := dates(written):
        if full & _dates(text):
            return True
        years = {str(day.year) for day in full}
        if not years & set(_YEAR.findall(text)):
            return False
    return bool(days & (_days(text) | _later_days(text)))


@lru_cache(maxsize=64)
def _dates(text: str) -> frozenset[Any]:
    return frozenset(dates(text))


@lru_cache(maxsize=64)
def _days(text: str) -> frozenset[tuple[int, int]]:
    """Month and day of every date in a text."""
    found = {(day.month, day.day) for day in dates(text)}
    for pattern in _DAYS:
        for match in pattern.finditer(text):
            found.add((_month(match["month"]), int(match["day"])))
    return frozenset(found)


def _later_days(text: str) -> set[tuple[int, int]]:
    """Days that end a range, in every month that the text names."""
    later = {int(day) for day in _LATER_DAY.findall(text)}
    return {(month, day) for month, _ in _days(text) for day in later}


def _month(written: str) -> int:
    if written.isdigit():
        return int(written)
    return next(n for name, n in MONTHS.items() if name.startswith(written.lower()[:3]))


def _says_time(text: str, written: str) -> bool:
    match = _TIME.fullmatch(written)
    return match is not None and bool(set(_clock(match)) & _times(text))


@lru_cache(maxsize=64)
def _times(text: str) -> frozenset[tuple[int, int]]:
    return frozenset(time for match in _TIME.finditer(text) for time in _clock(match))


def _clock(match: re.Match[str]) -> Iterator[tuple[int, int]]:
    """Hour and minute of a time of day; both halves where a text leaves open which."""
    if match["zh_hour"]:
        minute = 30 if match["zh_half"] else int(match["zh_minute"] or 0)
        yield (_zh_hour(int(match["zh_hour"]), match["part"]), minute)
        return
    if not (match["minute"] or match["half"]):
        return  # a bare number
    hour, minute = int(match["hour"]), int(match["minute"] or 0)
    if match["half"]:
        yield (hour % 12 + 12 * match["half"].lower().startswith("p"), minute)
        return
    yield (hour, minute)
    if 0 < hour < 12 and len(match["hour"]) == 1:
        yield (hour + 12, minute)


def _zh_hour(hour: int, part: str | None) -> int:
    """An hour as of 24; without a part of the day it is one already."""
    if part is None:
        return hour
    return hour % 12 + 12 * (hour % 12 in _AFTER_NOON.get(part, _EVENING))
