"""Splits that never meet: no entity and no composition in two of train, dev and held-out."""

from __future__ import annotations

from collections.abc import Iterable

from astra.records.qa import QAInstance, Split
from astra.records.score import Rejection

PRIORITY = (Split.HELDOUT, Split.DEV, Split.TRAIN)
"""An instance that shares something with an earlier split is dropped: training data give way to
what is measured."""
GUARDED = PRIORITY[:-1]
"""Splits that a later one gives way to. Nothing gives way to the last and largest, so its names
need not be remembered."""


class SplitGuard:
    """The entities and compositions of the measured splits, and who may not use them.

    It reads all instances once; ``violation`` then judges each in a second pass. Memory grows with
    the names in the splits that are measured.
    """

    def __init__(self, instances: Iterable[QAInstance]) -> None:
        self._entities: dict[Split, set[str]] = {split: set() for split in GUARDED}
        self._compositions: dict[Split, set[str]] = {split: set() for split in GUARDED}
        for instance in instances:
            if instance.split in GUARDED:
                self._entities[instance.split].update(map(_folded, instance.entities))
                self._compositions[instance.split].add(instance.composition)

    def violation(self, instance: QAInstance) -> Rejection | None:
        """The rejection of an instance that meets an earlier split of ``PRIORITY``."""
        for split in PRIORITY[: PRIORITY.index(instance.split)]:
            shared = self._entities[split].intersection(map(_folded, instance.entities))
            if shared:
                detail = f"{min(shared)!r} is also in {split}"
                return Rejection(item=instance.id, reason="split_entity", detail=detail)
            if instance.composition in self._compositions[split]:
                detail = f"{instance.composition!r} is also in {split}"
                return Rejection(item=instance.id, reason="split_composition", detail=detail)
        return None


def _folded(name: str) -> str:
    return " ".join(name.split()).casefold()
