"""Near-duplicate texts: MinHash bands propose candidates, exact Jaccard similarity decides."""

from __future__ import annotations

import hashlib
import math
import random
import sqlite3
from array import array
from collections.abc import Iterator, Sequence, Set
from itertools import pairwise
from typing import Self

from astra.text.words import words

_PRIME = (1 << 61) - 1
_ROWS = 4
_BANDS = 12
"""A pair of similarity 0.8 shares one of 12 bands of 4 rows with probability 0.998."""


def shingles(text: str) -> frozenset[str]:
    """Words and word pairs, lower-cased; a text without word characters is its own shingle."""
    lower = words(text.lower())
    if not lower:
        return frozenset([text.strip()])
    return frozenset(lower) | {f"{a} {b}" for a, b in pairwise(lower)}


def jaccard(left: Set[object], right: Set[object]) -> float:
    """The share of the elements of both sets that they have in common; 1 for two empty sets."""
    union = len(left | right)
    return len(left & right) / union if union else 1.0


class NearDuplicates:
    """An index that says whether a text is nearly the same as one added before.

    Deterministic: the answer depends on the texts and their order only. Work per text is
    bounded by the texts that share a band with it. The index is a temporary database: a few
    megabytes of memory, and beyond that a file without a name. It ends with the object, or with
    ``with``; one thread at a time.
    """

    def __init__(self, threshold: float) -> None:
        if not 0.5 <= threshold <= 1.0:
            raise ValueError(f"threshold {threshold} is outside [0.5, 1]: bands would miss pairs")
        self._threshold = threshold
        rng = random.Random(20260101)
        self._hashes = [
            (rng.randrange(1, _PRIME), rng.randrange(_PRIME)) for _ in range(_ROWS * _BANDS)
        ]
        self._index = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for statement in (
            "PRAGMA journal_mode=OFF",
            "PRAGMA synchronous=OFF",
            "CREATE TABLE texts (n INTEGER PRIMARY KEY, size INTEGER, shingles BLOB)",
            "CREATE TABLE bands (band INTEGER, n INTEGER, PRIMARY KEY (band, n)) WITHOUT ROWID",
            "BEGIN",
        ):
            self._index.execute(statement)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._index.close()

    def add(self, text: str) -> bool:
        """True if ``text`` was new (and is indexed now), False if it repeats an earlier one."""
        numbers = frozenset(_number(shingle) for shingle in shingles(text))
        bands = self._bands(numbers)
        if any(jaccard(numbers, other) >= self._threshold for other in self._alike(numbers, bands)):
            return False
        stored = array("q", sorted(numbers)).tobytes()
        added = self._index.execute(
            "INSERT INTO texts (size, shingles) VALUES (?, ?)", (len(numbers), stored)
        )
        rows = ((band, added.lastrowid) for band in set(bands))
        self._index.executemany("INSERT INTO bands VALUES (?, ?)", rows)
        return True

    def _alike(self, numbers: frozenset[int], bands: Sequence[int]) -> Iterator[frozenset[int]]:
        """Indexed texts that share a band; the sizes alone rule most of them out."""
        places = ", ".join("?" * len(bands))
        rows = self._index.execute(
            "SELECT shingles FROM texts WHERE size BETWEEN ? AND ? AND n IN "
            f"(SELECT n FROM bands WHERE band IN ({places}))",
            (
                math.floor(len(numbers) * self._threshold),
                math.ceil(len(numbers) / self._threshold),
                *bands,
            ),
        )
        for (stored,) in rows:
            yield frozenset(array("q", stored))

    def _bands(self, numbers: frozenset[int]) -> list[int]:
        """The bands of a text's MinHash signature; texts that are alike have one in common."""
        signature = [min((a * n + b) % _PRIME for n in numbers) for a, b in self._hashes]
        rows = (signature[at : at + _ROWS] for at in range(0, len(signature), _ROWS))
        return [_number(f"{band} {row}") for band, row in enumerate(rows)]


def _number(text: str) -> int:
    """56 bits that stand for a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=7).digest())
