"""Near-duplicate texts: MinHash bands propose candidates, exact Jaccard similarity decides."""

from __future__ import annotations

import hashlib
import random
from itertools import pairwise

from astra.text.words import words

_PRIME = (1 << 61) - 1
_ROWS = 4
_BANDS = 12
"""A pair of similarity 0.8 shares one of 12 bands of 4 rows with probability 0.998."""


def shingles(text: str) -> frozenset[str]:
    """Words and word pairs, lower-cased; a text without word characters is its own shingle."""
    found = words(text.lower())
    if not found:
        return frozenset([text.strip()])
    return frozenset(found) | {f"{a} {b}" for a, b in pairwise(found)}


def jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    union = len(left | right)
    return len(left & right) / union if union else 1.0


class NearDuplicates:
    """An index that says whether a text is nearly the same as one added before.

    Deterministic: the answer depends on the texts and their order only. Work per text is
    bounded by the texts that share a band with it.
    """

    def __init__(self, threshold: float) -> None:
        if not 0.5 <= threshold <= 1.0:
            raise ValueError(f"threshold {threshold} is outside [0.5, 1]: bands would miss pairs")
        self._threshold = threshold
        rng = random.Random(20260101)
        self._hashes = [
            (rng.randrange(1, _PRIME), rng.randrange(_PRIME)) for _ in range(_ROWS * _BANDS)
        ]
        self._bands: list[dict[tuple[int, ...], list[int]]] = [{} for _ in range(_BANDS)]
        self._seen: list[frozenset[str]] = []

    def add(self, text: str) -> bool:
        """True if ``text`` was new (and is indexed now), False if it repeats an earlier one."""
        items = shingles(text)
        keys = self._keys(items)
        candidates = {
            index
            for band, key in zip(self._bands, keys, strict=True)
            for index in band.get(key, ())
        }
        if any(self._near(items, self._seen[index]) for index in candidates):
            return False
        for band, key in zip(self._bands, keys, strict=True):
            band.setdefault(key, []).append(len(self._seen))
        self._seen.append(items)
        return True

    def _near(self, items: frozenset[str], other: frozenset[str]) -> bool:
        # The sizes alone bound the similarity: most candidates need no intersection.
        shorter, longer = sorted((len(items), len(other)))
        return shorter / longer >= self._threshold and jaccard(items, other) >= self._threshold

    def _keys(self, items: frozenset[str]) -> list[tuple[int, ...]]:
        numbers = [
            int.from_bytes(hashlib.blake2b(item.encode(errors="replace"), digest_size=7).digest())
            for item in items
        ]
        signature = [min((a * n + b) % _PRIME for n in numbers) for a, b in self._hashes]
        return [tuple(signature[i * _ROWS : (i + 1) * _ROWS]) for i in range(_BANDS)]
