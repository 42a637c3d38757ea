"""Words in any script: Chinese and Japanese characters count as one word each."""

from __future__ import annotations

import re

CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Inside of a character class: kana and Han characters."""
_WORD = re.compile(rf"[{CJK}]|(?:[^\W{CJK}]|')+")
_HAN = re.compile(rf"[{CJK}]")


def words(text: str) -> list[str]:
    """The words of ``text`` as written, in order."""
    return _WORD.findall(text)


def has_cjk(text: str) -> bool:
    return _HAN.search(text) is not None


def stands_in(literal: str, text: str) -> bool:
    """Whether ``literal`` stands in ``text`` as a whole, not inside a longer word or number.

    Scripts without spaces have no such bounds: a neighbouring character of theirs is fine.
    Literals in lower case match whatever the case.
    """
    pattern = rf"(?<![^\W{CJK}])(?<!\.){re.escape(literal)}(?![^\W{CJK}])(?!\.\d)"
    return re.search(pattern, text, re.IGNORECASE if literal.islower() else 0) is not None
