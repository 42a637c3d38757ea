"""Overlap of word n-grams: texts that share one with a reference are taken to repeat it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

_WORD = re.compile(r"\w+")


class NgramIndex:
    """Hashed n-grams of reference texts. A text of fewer than ``n`` words is one n-gram."""

    def __init__(self, n: int, texts: Iterable[str] = ()) -> None:
        self._n = n
        self._seen: set[bytes] = set()
        for text in texts:
            self.add(text)

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, text: str) -> None:
        self._seen.update(self._grams(text))

    def overlaps(self, text: str) -> bool:
        """Whether the text shares an n-gram with any reference."""
        return not self._seen.isdisjoint(self._grams(text))

    def _grams(self, text: str) -> set[bytes]:
        words = _WORD.findall(text.casefold())
        if not words:
            return set()
        starts = range(max(1, len(words) - self._n + 1))
        return {
            hashlib.blake2b(" ".join(words[at : at + self._n]).encode(), digest_size=8).digest()
            for at in starts
        }
