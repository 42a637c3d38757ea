"""The language that a text is written in: by script, and for Latin script by function words.

Enough to route and filter tool documents and questions; codes are ISO 639-1. ``und`` is
returned where the text gives no evidence (too short, no letters, code).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

UNKNOWN = "und"
_SCRIPTS = {
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
    "HANGUL": "ko",
    "CJK": "zh",
    "CYRILLIC": "ru",
    "ARABIC": "ar",
    "HEBREW": "he",
    "THAI": "th",
    "GREEK": "el",
    "DEVANAGARI": "hi",
    "LATIN": "latin",
}
_WORDS = {
    "en": "the a an of and to in for with is are what which on by from get find how many list "
    "this that be at or it your number search add create delete update show",
    "fr": "le la les des du un une et est dans pour avec sur par que qui au aux ce cette pas",
    "de": "der die das und ist ein eine den dem des zu mit auf von nicht im für sich wie",
    "es": "el los las del una un y es en para con por que se como su al lo más",
    "pt": "o os as do da dos das um uma e em para com por que não se como seu ao",
    "it": "il lo gli della del dei una un e di per con che non si come sono nel alla",
}
_FUNCTION_WORDS = {code: frozenset(words.split()) for code, words in _WORDS.items()}
_WORD = re.compile(r"[^\W\d_]+")
MIN_SHARE = 0.2
"""The share of letters from which on a non-Latin script decides; technical text mixes in Latin."""


def detect_language(text: str) -> str:
    """ISO 639-1 code of ``text``, or ``und``."""
    scripts = Counter(_script(letter) for letter in text if letter.isalpha())
    total = sum(scripts.values())
    if not total:
        return UNKNOWN
    if (
        scripts["ja"] / total >= MIN_SHARE / 2
        and (scripts["ja"] + scripts["zh"]) / total > MIN_SHARE
    ):
        return "ja"
    foreign = [(count, code) for code, count in scripts.items() if code not in ("latin", UNKNOWN)]
    if foreign:
        count, code = max(foreign)
        if count / total >= MIN_SHARE:
            return code
    return _latin(text)


def _script(letter: str) -> str:
    if letter.isascii():
        return "latin"
    head = unicodedata.name(letter, "").split(" ")[0].split("-")[0]
    return _SCRIPTS.get(head, UNKNOWN)


def _latin(text: str) -> str:
    words = [word.lower() for word in _WORD.findall(text)]
    hits = {code: sum(word in known for word in words) for code, known in _FUNCTION_WORDS.items()}
    best = max(hits.values())
    if not best:
        return UNKNOWN
    # Ties go to English: short technical texts share words such as "a" or "in".
    return next(code for code in _FUNCTION_WORDS if hits[code] == best)
