"""GRPO-RoC (Resampling on Correct): which of an oversampled group's rollouts are trained on.

Negatives are kept uniformly, so that failure modes stay diverse; positives by the quality of
how they were reached. The reward itself never sees that quality, so there is nothing to game.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from astra.records.message import CallStatus, ExecutedCall

NO_CALL_PENALTY = 0.5
WEIGHT_EPSILON = 0.05
"""What is added to a penalty before it is inverted, since a clean rollout has penalty 0."""
_FAILED = {
    CallStatus.ERROR,
    CallStatus.SOFT_ERROR,
    CallStatus.TIMEOUT,
    CallStatus.MALFORMED,
    CallStatus.UNKNOWN_TOOL,
    CallStatus.REFUSED,
}


@dataclass(frozen=True)
class Graded:
    """What the selection looks at: reward and process penalty of one rollout."""

    reward: float
    penalty: float


def penalty(calls: Sequence[ExecutedCall], final_text: str | None, turns: int) -> float:
    """p_err + p_format: share of failed calls (0.5 without calls), and answer-tag misuse.

    p_format is 1 without an answer tag, else (tags - 1) / turns, at most 1. A call failed by
    its recorded status, never by a word in its text.
    """
    charged = [call for call in calls if call.result.status != CallStatus.INFRA]
    p_err = failed_share(charged) if charged else NO_CALL_PENALTY
    tags = (final_text or "").count("<answer>")
    p_format = 1.0 if tags == 0 else min(1.0, (tags - 1) / max(turns, 1))
    return p_err + p_format


def failed_share(calls: Sequence[ExecutedCall]) -> float:
    """Failed calls over all of them; 0 where there are none."""
    return sum(call.result.status in _FAILED for call in calls) / max(len(calls), 1)


def select(
    group: Sequence[Graded],
    keep: int,
    mode: Literal["sample", "sort"],
    positive_above: float,
    rng: random.Random,
) -> list[int]:
    """Positions of the ``keep`` rollouts to train on, ascending.

    Class shares are kept: of N rollouts with m negatives, floor(m * keep / N) negatives stay
    and positives fill the rest. ``sample`` draws positives without replacement by 1/penalty;
    ``sort`` takes the lowest penalties, earlier rollouts first.
    """
    if not 0 < keep <= len(group):
        raise ValueError(f"cannot keep {keep} of {len(group)} rollouts")
    positives = [i for i, one in enumerate(group) if one.reward > positive_above]
    negatives = [i for i, one in enumerate(group) if one.reward <= positive_above]
    n_negative = max(len(negatives) * keep // len(group), keep - len(positives))
    chosen = rng.sample(negatives, n_negative)
    wanted = keep - n_negative
    if mode == "sort":
        chosen += sorted(positives, key=lambda i: (group[i].penalty, i))[:wanted]
    else:
        # Exponential races: the smallest e/w win, which is sampling without replacement by w.
        race = {i: rng.expovariate(1.0) * (group[i].penalty + WEIGHT_EPSILON) for i in positives}
        chosen += sorted(positives, key=lambda i: race[i])[:wanted]
    return sorted(chosen)
