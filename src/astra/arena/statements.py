"""Whether a message states a typed value: a token of it does, never a part of one.

``arena/answers.py`` compares; here a text is taken apart into what can be compared with it. Of a
number inside a longer number, an id or a date nothing is stated; numbers and dates may be written
in any of the forms that a final answer may have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from astra.arena.answers import final_matches, normalise, part_of
from astra.records.base import canonical_json
from astra.records.qa import Answer, AnswerType

_MONTHS = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sep(?:tember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_WRITTEN_DATE = re.compile(
    rf"\b(?:{_DAY}\s+(?:of\s+)?{_MONTHS},?\s+\d{{4}}|{_MONTHS}\s+{_DAY},?\s+\d{{4}})\b", re.I
)
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b|\bof\b", re.I)
_BREAKS = re.compile(r"[\s=|()\[\]{}<>\"“”„*`;!?]+|(?<=[^\W\d]):|,(?!\d)|[—–]")
"""What stands between tokens; a comma inside 1,042 and a colon inside 10:30 do not."""
_EDGES = ".,:'"
_SIGNS = "$€£¥₹₩"
_DIGIT = re.compile(r"\d")


def states(answer: Answer, text: str) -> bool:
    """Whether the text states the answer; of a list or a record, every part of it."""
    value: Any = answer.value
    match answer.type:
        case AnswerType.LIST:
            return all(states(part_of(item, answer), text) for item in value)
        case AnswerType.RECORD:
            return all(states(part_of(item, answer), text) for item in value.values())
        case AnswerType.DATE:
            return any(final_matches(answer, token) for token in _dates(text))
        case AnswerType.NUMBER:
            return any(final_matches(answer, token) for token in _numbers(text))
        case AnswerType.BOOLEAN:
            opposite = answer.model_copy(update={"value": not value})
            words = _tokens(text)
            said = any(final_matches(answer, word) for word in words)
            return said and not any(final_matches(opposite, word) for word in words)
        case AnswerType.STRING | AnswerType.ENUM:
            return _states_text(answer, text)


def stated(values: Iterable[Any], text: str) -> list[Any]:
    """Those of the scalars that the text states, each once; null is never stated.

    A code's underscores may be spaces, as in the answers that such values stand beside."""
    different = {canonical_json(value): value for value in values if value is not None}
    whole = Answer(type=AnswerType.LIST, value=[])
    return [
        value
        for value in different.values()
        if states(part_of(value, whole), text)
        or (isinstance(value, str) and states(Answer(type=AnswerType.ENUM, value=value), text))
    ]


def others(answer: Answer, text: str) -> list[Any]:
    """The numbers or dates, as the answer is one or the other, that a text states besides it."""
    if answer.type == AnswerType.DATE:
        return [token for token in dict.fromkeys(_dates(text)) if not final_matches(answer, token)]
    tokens = [token for token in _numbers(text) if not final_matches(answer, token)]
    return list(dict.fromkeys(value for token in tokens if (value := _number(token)) is not None))


def _states_text(answer: Answer, text: str) -> bool:
    wanted = normalise(str(answer.value))
    message = normalise(text)
    if answer.type == AnswerType.ENUM:
        wanted, message = wanted.replace("_", " "), message.replace("_", " ")
    start = message.find(wanted) if wanted else -1
    while start >= 0:
        if _stands_alone(message, start, start + len(wanted)):
            return True
        start = message.find(wanted, start + 1)
    return any(final_matches(answer, token) for token in _tokens(text))


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


def _tokens(text: str) -> list[str]:
    return [token for part in _BREAKS.split(text) if part and (token := part.strip(_EDGES))]


def _dates(text: str) -> Iterator[str]:
    for found in _WRITTEN_DATE.finditer(text):
        yield " ".join(_ORDINAL.sub("", found[0]).split())
    for token in _tokens(text):
        if token.count("-") >= 2 or token.count("/") >= 2:
            yield token


def _numbers(text: str) -> Iterator[str]:
    """Tokens that may be read as a number, with the sign of a currency left out."""
    for token in _tokens(_WRITTEN_DATE.sub(" ", text)):
        if _DIGIT.search(token):
            yield token.strip(_SIGNS)
            if token[0] in "+-" and token[1:2] in tuple(_SIGNS):
                yield token[0] + token[2:]


def _number(token: str) -> float | None:
    try:
        return float(token.rstrip("%").replace(",", ""))
    except ValueError:
        return None
