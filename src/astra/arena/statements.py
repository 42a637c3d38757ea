"""Whether a message states a typed value: a token of it does, never a part of one.

``arena/answers.py`` compares; here a text is taken apart into what can be compared with it. Of a
number inside a longer number, an id or a date nothing is stated; numbers and dates may be written
in any of the forms that a final answer may have. Markdown around a value is no part of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from typing import Any, NamedTuple

from astra.arena.answers import final_matches, normalise, part_of
from astra.records.qa import Answer, AnswerType

_MONTHS = (
    r"(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_MONTH = {name: at for at, name in enumerate(
    ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
)}  # fmt: skip
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_WRITTEN_DATE = re.compile(
    rf"\b(?:{_DAY}\s+(?:of\s+)?{_MONTHS},?\s+(\d{{4}})|{_MONTHS}\s+(?:the\s+)?{_DAY},?\s+(\d{{4}}))\b",
    re.I,
)
_MARKUP = (
    (re.compile(r"~~.*?~~", re.S), " "),  # struck out: not said
    (re.compile(r"!?\[([^\]]*)\]\([^)\s]*(?:\s\"[^\"]*\")?\)"), r"\1"),  # a link's text
    (re.compile(r"</?[a-z][a-z0-9]*(?:\s[^<>]*)?/?>", re.I), " "),
    (re.compile(r"\\([-_*`.#|~])"), r"\1"),
    (re.compile("[\u2010\u2011]"), "-"),
    (re.compile(r"(?<!\w)\*{1,3}(?=\S)|(?<=\S)\*{1,3}(?!\w)"), ""),
    (re.compile(r"`+"), " "),
    (re.compile(r"(?<![^\W_])_+|_+(?![^\W_])"), ""),
)
"""What marks text up, and what is left of it."""
_SHORT = re.compile(
    r"\b(jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|mr|mrs|ms|dr|approx|nr|no(?=\.\s\d))\.(?=\s)",
    re.I,
)
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
_MARKER = re.compile(r"^\s*(?:(?:[-+*•>|]|\d{1,2}[.)])\s+)+")
_BREAKS = re.compile(r"[\s=|()\[\]{}<>\"“”„*`;!?]+|(?<=[^\W\d]):|,(?!\d)|[—–]")
"""What stands between tokens; a comma inside 1,042 and a colon inside 10:30 do not."""
_EDGES = ".,:'"
_SIGNS = "$€£¥₹₩"
_DIGIT = re.compile(r"\d")
_DOTTED = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")
"""A day, month and year as much of the world writes them."""


def plain_text(text: str) -> str:
    """A text without its markup: emphasis, code marks, tags, links' addresses, what is struck."""
    for pattern, left in _MARKUP:
        text = pattern.sub(left, text)
    return text


def sentences(text: str) -> Iterator[tuple[str, bool]]:
    """The sentences and lines of a text, normalised, and whether each stands under the one before
    it."""
    for raw in _SENTENCE.split(_SHORT.sub(r"\1", plain_text(text))):
        if sentence := normalise(_MARKER.sub("", raw)):
            yield sentence, raw[:1].isspace() or _MARKER.match(raw) is not None


def states(answer: Answer, text: str) -> bool:
    """Whether the text states the answer; of a list or a record, every part of it."""
    return _states(answer, plain_text(text))


def _states(answer: Answer, text: str) -> bool:
    value: Any = answer.value
    match answer.type:
        case AnswerType.LIST:
            return all(_states(part_of(item, answer), text) for item in value)
        case AnswerType.RECORD:
            return all(_states(part_of(item, answer), text) for item in value.values())
        case AnswerType.DATE:
            return any(final_matches(answer, one.text) for one in dates_in(text))
        case AnswerType.NUMBER:
            return any(final_matches(answer, one.text) for one in numbers_in(text))
        case AnswerType.BOOLEAN:
            opposite = answer.model_copy(update={"value": not value})
            # In a Chinese sentence 是 says "is"; alone it says yes.
            words = [one.text for one in _tokens(text) if one.text.isascii()] or [text]
            said = any(final_matches(answer, word) for word in words)
            return said and not any(final_matches(opposite, word) for word in words)
        case AnswerType.STRING | AnswerType.ENUM:
            return _states_text(answer, text)


def others(answer: Answer, text: str) -> list[Any]:
    """The numbers or dates, as the answer is one or the other, that a text states besides it."""
    text = plain_text(text)
    if answer.type == AnswerType.DATE:
        found = dict.fromkeys(one.text for one in dates_in(text))
        return [one for one in found if not final_matches(answer, one)]
    tokens = [one.text for one in numbers_in(text) if not final_matches(answer, one.text)]
    return list(dict.fromkeys(value for token in tokens if (value := number(token)) is not None))


def _states_text(answer: Answer, text: str) -> bool:
    is_code = answer.type == AnswerType.ENUM
    if next(places_of(str(answer.value), normalise(text), is_code), None) is not None:
        return True
    return any(final_matches(answer, one.text) for one in _tokens(text))


def places_of(value: str, text: str, is_code: bool) -> Iterator[int]:
    """Where a normalised text has a value as a word of its own; underscores of a code may be
    spaces."""
    wanted = normalise(value)
    if is_code:
        wanted, text = wanted.replace("_", " "), text.replace("_", " ")
    start = text.find(wanted) if wanted else -1
    while start >= 0:
        if _stands_alone(text, start, start + len(wanted)):
            yield start
        start = text.find(wanted, start + 1)


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Whether what stands there is no part of a longer word, number or id."""
    before, after = text[max(0, start - 2) : start], text[end : end + 2]
    return not (_joins(before[::-1]) or _joins(after))


def _joins(next_to: str) -> bool:
    """Whether the characters next to a word, the nearest first, make it a part of another."""
    if not next_to:
        return False
    if next_to[0].isalnum() or next_to[0] == "_":
        return True
    return next_to[0] in "-.,@" and len(next_to) > 1 and next_to[1].isalnum()


class Token(NamedTuple):
    """A part of a text, and where it stands there."""

    text: str
    start: int
    end: int


def _tokens(text: str) -> Iterator[Token]:
    start = 0
    for gap in (*_BREAKS.finditer(text), None):
        end = gap.start() if gap else len(text)
        part = text[start:end].lstrip(_EDGES)
        if token := part.rstrip(_EDGES):
            yield Token(token, end - len(part), end - len(part) + len(token))
        start = gap.end() if gap else end


def dates_in(text: str) -> Iterator[Token]:
    """Tokens that may be read as a date; those in words as ISO 8601."""
    if not _DIGIT.search(text):
        return
    for found in _WRITTEN_DATE.finditer(text):
        day, month, year, named, other_day, other_year = found.groups()
        at = _MONTH[(month or named)[:3].lower()]
        iso = f"{year or other_year}-{at:02}-{int(day or other_day):02}"
        yield Token(iso, *found.span())
    for token in _tokens(text):
        if token.text.count("-") >= 2 or token.text.count("/") >= 2:
            yield token
        elif found := _DOTTED.fullmatch(token.text):
            day, month, year = found.groups()
            yield token._replace(text=f"{year}-{int(month):02}-{int(day):02}")


def numbers_in(text: str) -> Iterator[Token]:
    """Tokens that may be read as a number, with the sign of a currency left out."""
    if not _DIGIT.search(text):
        return
    blank = _WRITTEN_DATE.sub(lambda found: " " * len(found[0]), text)
    for token in _tokens(blank):
        if _DIGIT.search(token.text):
            yield token._replace(text=token.text.strip(_SIGNS))
            if token.text[0] in "+-" and token.text[1:2] in tuple(_SIGNS):
                yield token._replace(text=token.text[0] + token.text[2:])


def number(token: str) -> float | None:
    """A token as a number; None where it is none."""
    try:
        return float(token.rstrip("%").replace(",", ""))
    except ValueError:
        return None


def day(token: str) -> str | None:
    """A token as an ISO 8601 date; None where it is none."""
    if token[10:11] not in ("", "T", "t", " "):
        return None
    try:
        return date.fromisoformat(token.replace("/", "-")[:10]).isoformat()
    except ValueError:
        return None
