"""Adaptive batch filling (ASTRA section 5.1): roll until enough groups carry signal, bounded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Group = TypeVar("Group")
MIN_RATE = 0.25
"""Expected share of informative groups never counts as lower: it bounds a round's size."""
RATE_MEMORY = 0.8


@dataclass(frozen=True)
class Filled(Generic[Group]):
    """A batch: ``groups`` has the size asked for, its first ``informative`` carry signal."""

    groups: list[Group]
    informative: int
    rolled: int
    rounds: int


class BatchFiller(Generic[Group]):
    """Sizes rounds by the running share of informative groups.

    ``roll(count)`` makes groups, ``informative`` judges one. The first n informative groups in
    rolling order form the batch; surplus is dropped, so that no group is older than the
    weights it trains. What is missing after ``max_rounds`` is filled with groups without
    signal: their advantages are 0, so they add no gradient.
    """

    def __init__(self, informative: Callable[[Group], bool], max_rounds: int) -> None:
        self._informative = informative
        self._max_rounds = max_rounds
        self.rate = 1.0
        """Running share of informative groups; part of a checkpoint's state."""

    def fill(self, need: int, roll: Callable[[int, int], Sequence[Group]]) -> Filled[Group]:
        """A batch of ``need`` groups; ``roll(count, round)`` returns at most ``count`` groups."""
        good: list[Group] = []
        spare: list[Group] = []
        rolled = rounds = 0
        while len(good) < need and rounds < self._max_rounds:
            missing = need - len(good)
            count = math.ceil(missing / max(self.rate, MIN_RATE))
            if rounds == 0:
                count = max(count, need)
            groups = roll(count, rounds)
            rounds += 1
            rolled += len(groups)
            found = [group for group in groups if self._informative(group)]
            spare += [group for group in groups if not self._informative(group)]
            good += found
            if groups:
                share = len(found) / len(groups)
                self.rate = RATE_MEMORY * self.rate + (1 - RATE_MEMORY) * share
        chosen = good[:need]
        batch = [*chosen, *spare[: need - len(chosen)]]
        if len(batch) < need:
            raise ValueError(f"only {len(batch)} of {need} groups could be rolled at all")
        return Filled(batch, len(chosen), rolled, rounds)
