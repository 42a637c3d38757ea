"""Words in any script: Chinese and Japanese characters count as one word each."""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal

CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Kana and Han characters, as the inside of a character class."""
_WORD = re.compile(rf"[{CJK}]|(?:[^\W{CJK}]|')+")
_HAN = re.compile(rf"[{CJK}]")
_GOES_ON = re.compile(rf"[^\W{CJK}]|\.\d")
_GOES_ON_BEFORE = re.compile(rf"[^\W{CJK}]|\.")
_NUMBER = re.compile(
    rf"(?<![^\W{CJK}])(?<!\d[-.:/])(?:(?<![)\]])-)?"
    r"(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)"
    rf"(?![^\W{CJK}]|[-.:/]\d)"
)
_SAME_CHARACTERS = str.maketrans(
    {
        **dict.fromkeys('"“”„«»「」『』《》', None),
        **dict.fromkeys("‘’‛`´", "'"),
        **dict.fromkeys("‐‑‒–—−", "-"),
    }
)
_SPACES = re.compile(r"\s+")
_CJK_SPACES = re.compile(rf"(?<=[{CJK}]) | (?=[{CJK}])")
_ENDS = " \t\n.,;:!?。，；：！？…"


def words(text: str) -> list[str]:
    """The words of ``text`` as written, in order."""
    return _WORD.findall(text)


def has_cjk(text: str) -> bool:
    """Whether ``text`` holds a kana or Han character."""
    return _HAN.search(text) is not None


def stands_in(literal: str, text: str) -> bool:
    """Whether ``literal`` stands in ``text`` as a whole, not inside a longer word or number.

    Scripts without spaces have no such bounds: a neighbouring character of theirs is fine.
    Literals in lower case match whatever the case.
    """
    # One pattern with its bounds as look-arounds would say the same, but their character classes
    # take milliseconds to compile, for each literal anew.
    wanted = re.compile(re.escape(literal), re.IGNORECASE if literal.islower() else 0)
    match = wanted.search(text)
    while match is not None:
        start, end = match.span()
        if not _GOES_ON_BEFORE.match(text[start - 1 : start]) and not _GOES_ON.match(text, end):
            return True
        match = wanted.search(text, start + 1) if start < len(text) else None
    return False


def plain(text: str) -> str:
    """``text`` without what writers vary freely.

    Case, width of characters and of spaces, forms of dashes and apostrophes, and quotation marks.
    """
    same = unicodedata.normalize("NFKC", text).translate(_SAME_CHARACTERS).casefold()
    return _CJK_SPACES.sub("", _SPACES.sub(" ", same)).strip()


def says(phrase: str, text: str) -> bool:
    """Whether ``phrase`` stands in ``text`` as a whole, both as ``plain`` has them.

    Punctuation at the ends of the phrase does not count; a phrase of nothing else is never said.
    """
    wanted = plain(phrase).strip(_ENDS)
    return bool(wanted) and stands_in(wanted, plain(text))


def numbers(text: str) -> set[Decimal]:
    """The numbers that stand in ``text`` as whole tokens, whatever their form (1,000 and 1.50).

    A number inside a word, a date, a time, a version or a range is none.
    """
    found = _NUMBER.findall(unicodedata.normalize("NFKC", text).replace("−", "-"))
    return {Decimal(token.replace(",", "")) for token in found}
