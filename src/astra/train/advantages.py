"""Whether the rewards of a group carry signal (ASTRA section 5.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence


def group_std(rewards: Sequence[float]) -> float:
    """Sample standard deviation (n - 1), as the trainer computes it; 0 for fewer than two."""
    if len(rewards) < 2:
        return 0.0
    mean = sum(rewards) / len(rewards)
    return math.sqrt(sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1))


def is_informative(rewards: Sequence[float], min_std: float) -> bool:
    """Whether the group can move the policy: its rewards spread by more than delta."""
    return group_std(rewards) > min_std
