"""How various the questions of a split are: how often each shape occurs, and how often it may.

A shape is an instance's composition: its operations with their relations, without entities.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from astra.records.qa import QAInstance, Split

SMALLEST = 300
"""Instances of the smallest split that is cut: in fewer, a few questions are a large share."""
OVER_EVEN = 2.0
"""How many times its even share a shape may hold where shapes are too few for a smaller one."""


class ShapeCounts:
    """How many instances of each shape the splits have."""

    def __init__(self) -> None:
        self._counts: dict[Split, Counter[str]] = {}

    def add(self, instance: QAInstance) -> None:
        """Count one more."""
        self._counts.setdefault(instance.split, Counter())[instance.composition] += 1

    def of(self, instance: QAInstance) -> int:
        """How many instances of the instance's split have its shape."""
        return self._counts.get(instance.split, Counter[str]())[instance.composition]

    def limits(self, share: float) -> dict[Split, int]:
        """The most instances of a shape in each split that is large enough to be cut."""
        return {
            split: limit(counts.values(), share)
            for split, counts in self._counts.items()
            if counts.total() >= SMALLEST
        }

    def largest_shares(self) -> dict[str, dict[str, float]]:
        """The number of shapes in each split, and the largest share that one of them has."""
        return {
            split.value: {
                "count": len(counts),
                "largest_share": round(max(counts.values()) / counts.total(), 4),
            }
            for split, counts in sorted(self._counts.items())
        }


def limit(counts: Collection[int], share: float) -> int:
    """The largest number of instances per shape that is at most ``share`` of all that it leaves.

    ``counts``: instances of each shape. Few shapes may each hold more: OVER_EVEN times what each
    would hold if all were as frequent.
    """
    allowed = max(share, OVER_EVEN / len(counts))
    most = max(counts)
    while most > 1 and most > allowed * sum(min(count, most) for count in counts):
        most -= 1
    return most
