"""The language that a text is written in: by script, and among languages of one script by letters.

Enough to route and filter tool documents and questions; codes are ISO 639-1. ``und`` is
returned where the text gives no evidence (too short, no letters, names or code only): a wrong
code costs more than none.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

UNKNOWN = "und"
_LATIN = tuple(
    "en fr de es pt it nl id pl sv tr vi "
    "cs da fi hu ro".split()  # neighbours: a Danish text is to be no Swedish one
)
_SCRIPTS = {
    "HIRAGANA": ("ja",),
    "KATAKANA": ("ja",),
    "HANGUL": ("ko",),
    "CJK": ("zh",),
    "CYRILLIC": ("ru", "uk", "bg"),
    "ARABIC": ("ar", "fa", "ur"),
    "HEBREW": ("he",),
    "THAI": ("th",),
    "GREEK": ("el",),
    "DEVANAGARI": ("hi", "mr", "ne"),
    "LATIN": _LATIN,
}
"""The languages told apart in each script; without evidence a foreign script's first is meant."""
_QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|“[^“”]*”|„[^„“”]*[“”]|«[^«»]*»|‹[^‹›]*›")
_NO_WORD = re.compile(r"[_/\\@=<>{}\[\]()*|\d]|\w\.\w")
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
MIN_SHARE = 0.2
"""The share of letters from which on a non-Latin script decides; technical text mixes in Latin."""
_SYLLABIC = (("ja",), ("ko",), ("zh",))
SYLLABLE = 2
"""Letters that a Chinese, Japanese or Korean one counts for."""
MIN_CONFIDENCE = 0.6
"""How sure the identifier must be of a language in Latin script."""
MIN_WORDS = 2
"""The fewest words besides names from which a language is told."""
TITLE_WORDS = 6
"""So many words are a text in capitals, not a name."""
MAX_CHARS = 20_000
"""How much of a text is looked at."""


@lru_cache(maxsize=1024)
def detect_language(text: str) -> str:
    """ISO 639-1 code of ``text``, or ``und``."""
    text = text[:MAX_CHARS]
    scripts: Counter[Sequence[str]] = Counter()
    for letter in filter(str.isalpha, text):
        codes = _script(letter)
        scripts[codes] += SYLLABLE if codes in _SYLLABIC else 1
    total = sum(scripts.values())
    if not total:
        return UNKNOWN
    japanese, chinese = scripts[_SCRIPTS["HIRAGANA"]], scripts[_SCRIPTS["CJK"]]
    if japanese / total >= MIN_SHARE / 2 and (japanese + chinese) / total > MIN_SHARE:
        return "ja"
    foreign = [(count, codes) for codes, count in scripts.items() if codes not in ((), _LATIN)]
    count, codes = max(foreign, default=(0, ()))
    if count / total < MIN_SHARE:
        return _latin(text)
    return codes[0] if len(codes) == 1 else _likeliest(text, codes)[0]


def same_script(one: str, other: str) -> bool:
    """Whether two languages are told apart by their words alone."""
    return any(one in codes and other in codes for codes in _SCRIPTS.values())


@lru_cache(maxsize=4096)
def _script(letter: str) -> Sequence[str]:
    if letter.isascii():
        return _LATIN
    head = unicodedata.name(letter, "").split(" ")[0].split("-")[0]
    return _SCRIPTS.get(head, ())


def _latin(text: str) -> str:
    # Quoted text and words with signs or digits say nothing about the language around them.
    prose = [word for word in _QUOTED.sub(" ", text).split() if not _NO_WORD.search(word)]
    words = [word for word in _WORD.findall(" ".join(prose)) if _script(word[0]) == _LATIN]
    # Capitals mark names, which keep their own language: "Convert Los Angeles hotel prices".
    plain = [word for word in words if not word[0].isupper()]
    if sum(len(word) > 1 for word in plain) < MIN_WORDS:
        if len(words) < TITLE_WORDS:
            return UNKNOWN
        plain = [word.lower() for word in words]
    elif words[0][0].isupper():
        plain.insert(0, words[0].lower())
    code, confidence = _likeliest(" ".join(plain), _LATIN)
    return code if confidence >= MIN_CONFIDENCE else UNKNOWN


def _likeliest(text: str, codes: Sequence[str]) -> tuple[str, float]:
    """The likeliest of ``codes`` and how likely it is among them; the first if nothing tells."""
    ranked = {code: float(share) for code, share in _identifier().rank(text)}
    total = sum(ranked[code] for code in codes)
    code = max(codes, key=ranked.__getitem__)
    return (code, ranked[code] / total) if total else (codes[0], 0.0)


@lru_cache(maxsize=1)
def _identifier() -> LanguageIdentifier:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages([code for codes in _SCRIPTS.values() for code in codes])
    return identifier
