"""Which words, numbers and names of one text occur in another."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from astra.text.verbs import singular, words_of
from astra.text.words import has_cjk

_TOKEN = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+")
_NAME = re.compile(r"\b[A-Z][\w'-]*(?: [A-Z][\w'-]*)+")
_QUOTED = re.compile(r"[\"“'‘]([^\"”'’]{1,80})[\"”'’](?!\w)")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w])")
_SELF = re.compile(r"\bI(?: am|'m| work| live) [^.?!]*[.!]")
_URL = re.compile(r"https?://[^\s<>\"')\]]+")
_MONTHS = "january february march april may june july august september october november december"
_MONTH_NUMBERS = {month: str(n) for n, month in enumerate(_MONTHS.split(), start=1)}
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
    """Words in lower case and numbers in canonical form; month names count as numbers too."""
    comparable: set[str] = set()
    for token in _TOKEN.findall(text):
        if token[0].isdigit():
            comparable.add(_canonical(token))
            continue
        word = token.lower()
        comparable.add(word)
        if word in _MONTH_NUMBERS:
            comparable.add(_MONTH_NUMBERS[word])
    return comparable


def _canonical(number: str) -> str:
    """``007`` is 7, and ``1.50`` is 1.5."""
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return number.lstrip("0") or "0"


def occurs(value: Any, source: str, words: set[str]) -> bool:
    """Whether ``source`` (with ``tokens(source)`` in ``words``) states ``value``.

    Short values must occur whole. Of a composed text (a query, a note) every quoted text and
    name must, and at least one word.
    """
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, dict):
        return all(occurs(inner, source, words) for inner in value.values())
    if isinstance(value, list):
        return all(occurs(inner, source, words) for inner in value)
    text = value if isinstance(value, str) else json.dumps(value).lstrip("-")
    if not text.strip() or text.casefold() in source.casefold():
        return True
    if has_cjk(text):
        return text in source
    wanted = tokens(text)
    if len(wanted) <= SHORT_VALUE:
        return bool(wanted) and wanted <= words
    named = [*_QUOTED.findall(text), *_NAME.findall(text)]
    return bool(wanted & words) and all(tokens(part) <= words for part in named)


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


def urls(text: str) -> list[str]:
    """The URLs in ``text``, without the punctuation that ends a sentence."""
    return [url.rstrip(".,;:") for url in _URL.findall(text)]


def joined(parts: Iterable[str]) -> str:
    """Texts one below the other, so that no word of one runs into the next."""
    return "\n".join(parts)
