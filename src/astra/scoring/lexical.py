"""Which words, numbers and names of one text occur in another."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import date
from itertools import pairwise
from typing import Any

from astra.text.figures import (
    MONTHS,
    NUMBER,
    canonical,
    dates,
    is_date,
    plain,
    spelled_numbers,
)
from astra.text.verbs import singular, words_of
from astra.text.words import has_cjk, stands_in

_TOKEN = re.compile(rf"{NUMBER}|[^\W\d_]+")
_NAME = re.compile(r"\b[A-Z][\w'-]*(?: [A-Z][\w'-]*)+")
_QUOTED = re.compile(r"[\"“'‘]([^\"”'’]{1,80})[\"”'’](?!\w)")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w])")
_SELF = re.compile(r"\bI(?: am|'m| work| live) [^.?!]*[.!]")
_CODE = re.compile(r"(?=\S*[^\W\d])(?=\S*[\d/@_:=#])\S+")
"""An identifier, path or address: no spaces, with letters and with digits or such signs."""
_EVERYDAY = (
    "the a an of for in on at to and or is are was be do does did what which who whom where when "
    "how many much please tell me give i need want can you it its that this with from by get "
    "find list show count there first then also my"
)
_COMMON = frozenset(_EVERYDAY.split())
SHORT_VALUE = 4
"""How many words a value may have that must be quoted whole; a longer one is a composed text,
such as a query or a note."""


def tokens(text: str) -> set[str]:
    """Words in lower case and singular, numbers in canonical form; months count as numbers too."""
    comparable: set[str] = set()
    for token in _TOKEN.findall(text):
        if token[-1].isdigit():
            comparable.add(canonical(token))
            continue
        word = token.lower()
        comparable.add(singular(word))
        if word in MONTHS:
            comparable.add(str(MONTHS[word]))
    return comparable


def occurs(value: Any, source: str, words: set[str]) -> bool:
    """Whether ``source`` (with ``tokens(source)`` in ``words``) states ``value``.

    Numbers compare as whole numbers, also with those that words say, and dates as dates. Codes
    and short texts must occur whole; of a composed text (a query, a note) every quoted text and
    name must, and at least one word.
    """
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, dict):
        return all(occurs(inner, source, words) for inner in value.values())
    if isinstance(value, list):
        return all(occurs(inner, source, words) for inner in value)
    if isinstance(value, int | float):
        number = plain(value)
        return number in words or number in spelled_numbers(source)
    return _text_occurs(str(value), source, words)


def _text_occurs(text: str, source: str, words: set[str]) -> bool:
    if not text.strip() or stands_in(text.casefold(), source.casefold()):
        return True
    if has_cjk(text):
        return False
    if is_date(text):
        return _is_given(text, source)
    if _CODE.fullmatch(text):
        return False  # one character more or less is another thing
    wanted = tokens(text)
    if len(wanted) <= SHORT_VALUE:
        missing = wanted - words
        return bool(wanted) and (not missing or missing <= spelled_numbers(source))
    named = [*_QUOTED.findall(text), *_NAME.findall(text)]
    return bool(wanted & words) and all(tokens(part) <= words for part in named)


def _is_given(iso: str, source: str) -> bool:
    try:
        return date.fromisoformat(iso) in dates(source)
    except ValueError:
        return False  # a day that no month has


def legible(result: str) -> str:
    """A tool's result for comparisons: JSON with spaces after its commas and without escapes.

    ``[100,200]`` would read as one number otherwise.
    """
    if not result.lstrip().startswith(("{", "[")):
        return result
    try:
        return json.dumps(json.loads(result), ensure_ascii=False)
    except (ValueError, RecursionError):
        return result


def subjects(question: str) -> list[str]:
    """What a question is about, by its form: quoted texts, names of several words, numbers.

    Sentences in which users introduce themselves ("I am a farmer of 35 years.") are left out.
    """
    question = _SELF.sub(" ", question)
    texts = [*_QUOTED.findall(question), *_NAME.findall(question), *_NUMBER.findall(question)]
    return list(dict.fromkeys(_without_opener(text) for text in texts))


def _without_opener(name: str) -> str:
    # "What Amber Cove ..." and "Find Amber Cove": the sentence's first word is no part of it.
    first, _, remainder = name.partition(" ")
    return remainder if remainder and first.lower() in _COMMON else name


def content_words(text: str) -> set[str]:
    """The words of ``text`` that carry its content, in lower case and singular.

    Everyday words are left out. Chinese text has no spaces between words: it gives its pairs of
    neighbouring characters instead.
    """
    content: set[str] = set()
    for word in words_of(text):
        if has_cjk(word):
            content.update(a + b for a, b in pairwise(word))
        else:
            content.add(singular(word))
    return content - _COMMON


def joined(parts: Iterable[str]) -> str:
    """Texts one below the other, so that no word of one runs into the next."""
    return "\n".join(parts)
