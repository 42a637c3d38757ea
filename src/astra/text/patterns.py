"""Texts that match a regular expression, short and plain where the expression leaves a choice."""

from __future__ import annotations

import random
import re
from typing import Any

from rstr import Rstr

MAX_MORE = 8
"""How often more than it must a part is repeated at most: ``+`` gives one to nine of them."""
MAX_REPEATS = 20_000
"""The most repeats in all tries together: a short expression can demand billions."""
_ATTEMPTS = 100


class NoMatch(ValueError):
    """No text of the wanted length that matches the expression was found."""


class _Plain(random.Random):
    """Prefers few repeats, letters and digits. Raises NoMatch after ``MAX_REPEATS``.

    Choices are made from sorted characters: the library collects some in a set, whose order
    differs from process to process.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._left = MAX_REPEATS

    def randint(self, a: int, b: int) -> int:
        times = super().randint(a, max(a, min(b, a + MAX_MORE)))
        self._left -= times
        if self._left < 0:
            raise NoMatch("it repeats too much")
        return times

    def choice(self, seq: Any) -> Any:
        if not all(isinstance(item, str) for item in seq):
            return super().choice(seq)
        plain = [item for item in seq if item.isascii() and item.isalnum()]
        return super().choice(sorted(plain or seq))


def draw_match(pattern: str, rng: random.Random, low: int, high: int) -> str:
    """A text of ``low`` to ``high`` characters in which ``pattern`` is found. Raises NoMatch.

    Word boundaries and what an expression looks around for are not planned for but checked.
    """
    drawer = Rstr(_Plain(rng.getrandbits(64)))
    for _ in range(_ATTEMPTS):
        try:
            text = drawer.xeger(pattern)
        except (re.error, LookupError, ValueError, RecursionError) as error:
            # The library does not know a construct, or nothing can match.
            raise NoMatch(f"pattern {pattern[:100]!r} cannot be drawn: {error}") from None
        if low <= len(text) <= high and re.search(pattern, text):
            return text
    raise NoMatch(f"no text of {low} to {high} characters found for pattern {pattern[:100]!r}")
