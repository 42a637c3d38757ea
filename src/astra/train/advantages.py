"""Group-relative advantages (ASTRA section 5.1): pure functions over one group's rewards."""

from __future__ import annotations

import math
from collections.abc import Sequence

STD_EPSILON = 1e-4


def group_std(rewards: Sequence[float]) -> float:
    """Sample standard deviation (n - 1), as the trainer computes it; 0 for fewer than two."""
    if len(rewards) < 2:
        return 0.0
    mean = sum(rewards) / len(rewards)
    return math.sqrt(sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1))


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """(r - mean) / (std + 1e-4) within the group; all 0 where rewards are equal."""
    mean, std = sum(rewards) / len(rewards), group_std(rewards)
    return [(r - mean) / (std + STD_EPSILON) for r in rewards]


def is_informative(rewards: Sequence[float], min_std: float) -> bool:
    """Whether the group can move the policy: its rewards spread by more than delta."""
    return group_std(rewards) > min_std
