"""Words in any script: Chinese and Japanese characters count as one word each."""

from __future__ import annotations

import re

CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Kana and Han characters, as the inside of a character class."""
_WORD = re.compile(rf"[{CJK}]|(?:[^\W{CJK}]|')+")
_HAN = re.compile(rf"[{CJK}]")
_GOES_ON = re.compile(rf"[^\W{CJK}]|\.\d")
_GOES_ON_BEFORE = re.compile(rf"[^\W{CJK}]|\.")


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
