"""Adaptive batch filling (ASTRA section 5.1): roll until enough groups carry signal, bounded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Group = TypeVar("Group")
MIN_RATE = 0.25
"""The least share of informative groups that a round is planned with: a bound on its size."""
RATE_MEMORY = 0.8
"""The weight of earlier rounds in the running share."""
REPLACEMENT_ROUNDS = 2
"""Rounds beyond ``max_rounds`` that replace groups which our own machinery lost (ours)."""


@dataclass(frozen=True)
class Filled(Generic[Group]):
    """A batch: ``groups`` has the size asked for, its first ``informative`` carry signal.

    Those chosen for their signal say less of the policy than all that were ``rolled``.
    """

    groups: list[Group]
    informative: int
    rolled: int
    rounds: int
    surplus: list[Group]
    """Informative groups that the batch had no room for."""


class BatchFiller(Generic[Group]):
    """Sizes rounds by the running share of informative groups.

    ``informative`` judges a group. The first n informative groups in rolling order form the batch.
    What is missing after ``max_rounds`` is filled with groups without signal, which the trainer
    leaves out of its loss. With ``adaptive`` off the first n groups form the batch, whatever they
    are; further rounds only replace what our machinery lost.
    """

    def __init__(
        self, informative: Callable[[Group], bool], max_rounds: int, adaptive: bool = True
    ) -> None:
        self._informative = informative
        self._max_rounds = max_rounds
        self._adaptive = adaptive
        self.rate = 1.0
        """The running share of informative groups; part of a checkpoint's state."""

    def fill(
        self, need: int, roll: Callable[[int, int], Sequence[Group]], carried: Sequence[Group] = ()
    ) -> Filled[Group]:
        """A batch of ``need`` groups; ``roll(count, round)`` returns some ``count`` groups: fewer
        where some are lost, more where ranks roll as many each.

        ``carried`` is earlier surplus: it comes first. Raises ValueError where so many groups are
        lost that the batch stays short after ``REPLACEMENT_ROUNDS`` more rounds.
        """
        good: list[Group] = list(carried)
        spare: list[Group] = []
        rolled = rounds = 0
        while count := self._count(need, len(good), len(spare), rounds):
            groups = roll(count, rounds)
            rounds += 1
            rolled += len(groups)
            if not self._adaptive:
                groups = groups[:count]
            informative = [group for group in groups if self._informative(group)]
            spare += [group for group in groups if not self._informative(group)]
            good += informative
            if groups:
                share = len(informative) / len(groups)
                self.rate = RATE_MEMORY * self.rate + (1 - RATE_MEMORY) * share
        chosen, surplus = good[:need], good[need:]
        batch = [*chosen, *spare[: need - len(chosen)]]
        if len(batch) < need:
            raise ValueError(f"only {len(batch)} of {need} groups could be rolled at all")
        return Filled(batch, len(chosen), rolled, rounds, surplus)

    def _count(self, need: int, good: int, spare: int, rounds: int) -> int:
        """How many groups the next round rolls; 0: no further round."""
        if rounds < self._max_rounds:
            missing = max(0, need - good - (0 if self._adaptive else spare))
            return math.ceil(missing / max(self.rate, MIN_RATE)) if self._adaptive else missing
        if rounds < self._max_rounds + REPLACEMENT_ROUNDS:
            return max(0, need - good - spare)
        return 0
