"""Means with bootstrap intervals, paired differences and tests. Pure functions of their arguments.

A benchmark's unit is the entry: tries of one entry are averaged first, and resampling draws
entries, since tries of one entry are no independent evidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

DRAWS = 4_000_000
"""Resampled values held in memory at a time."""
EXACT = 14
"""The sign-flip test tries all flips of so many non-zero differences; of more it draws some."""


@dataclass(frozen=True)
class Estimate:
    """A mean over ``n`` items with its percentile bootstrap interval."""

    mean: float
    low: float
    high: float
    n: int


def estimate(values: Sequence[float], resamples: int, confidence: float, seed: int) -> Estimate:
    """Mean of ``values`` and its interval. Raises ValueError if there are none, or one is NaN."""
    sample = np.asarray(values, dtype=np.float64)
    if not len(sample) or not np.isfinite(sample).all():
        raise ValueError(f"{len(sample)} values, all must be finite and at least one be given")
    means = _resampled_means(sample, resamples, seed)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return Estimate(float(sample.mean()), float(low), float(high), len(sample))


def paired_difference(
    after: Sequence[float], before: Sequence[float], resamples: int, confidence: float, seed: int
) -> Estimate:
    """Mean of ``after - before`` per item, resampling items: both saw the same arenas."""
    differences = [a - b for a, b in zip(after, before, strict=True)]
    return estimate(differences, resamples, confidence, seed)


def _resampled_means(sample: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    n = len(sample)
    rows = max(1, min(resamples, DRAWS // n))
    parts: list[np.ndarray] = []
    for start in range(0, resamples, rows):
        drawn = generator.integers(0, n, size=(min(rows, resamples - start), n))
        parts.append(sample[drawn].mean(axis=1))
    return np.concatenate(parts)


def mean_by_entry(values: Mapping[tuple[str, int], float]) -> dict[str, float]:
    """Mean over tries: from values by (entry, attempt) to one value per entry."""
    by_entry: dict[str, list[float]] = {}
    for (entry, _), value in values.items():
        by_entry.setdefault(entry, []).append(value)
    return {entry: sum(tries) / len(tries) for entry, tries in sorted(by_entry.items())}


def pass_hat_k(values: Mapping[tuple[str, int], float], k: int) -> float | None:
    """Mean over entries of the chance that ``k`` tries all succeed (pass^k, from tau-bench).

    Of n tries with c successes: C(c, k) / C(n, k). None where an entry has fewer than k tries. A
    try succeeds with a value of 1; any other value is a failure.
    """
    tries: dict[str, list[float]] = {}
    for (entry, _), value in values.items():
        tries.setdefault(entry, []).append(value)
    if not tries or any(len(tried) < k for tried in tries.values()):
        return None
    chances = [
        math.comb(sum(value == 1 for value in tried), k) / math.comb(len(tried), k)
        for tried in tries.values()
    ]
    return sum(chances) / len(chances)


def overall(by_category: Mapping[str, float], leave_out: Sequence[str] = ()) -> float | None:
    """The unweighted mean of the categories' scores, as the paper's overall columns are.

    tau2 without airline leaves that category out. None where nothing is left.
    """
    kept = [value for name, value in by_category.items() if name not in leave_out]
    return sum(kept) / len(kept) if kept else None


@dataclass(frozen=True)
class Efficiency:
    """The paper's efficiency table: ``steps`` per episode and written tokens per step."""

    steps: float
    tokens_per_step: float | None
    """None where no step was made."""


def efficiency(steps: Sequence[int], completion_tokens: Sequence[int]) -> Efficiency:
    """The figures of episodes, from the steps and the written tokens of each. Raises ValueError
    without episodes."""
    if not steps or len(steps) != len(completion_tokens):
        raise ValueError(f"{len(steps)} episodes, {len(completion_tokens)} token counts")
    total = sum(steps)
    return Efficiency(total / len(steps), sum(completion_tokens) / total if total else None)


def sign_flip_p(differences: Sequence[float], rounds: int, seed: int) -> float:
    """Two-sided p-value of a paired difference being chance: each entry's sign may be flipped.

    Exact for few non-zero differences, else from ``rounds`` random flips (with the observed one
    counted among them, so it is never 0). 1 where nothing differs.
    """
    moved = np.asarray([value for value in differences if value != 0], dtype=np.float64)
    if not len(moved):
        return 1.0
    observed = abs(moved.sum()) * (1 - 1e-12)  # equal sums in another order must count
    if len(moved) <= EXACT:
        flips = np.asarray(list(product((1.0, -1.0), repeat=len(moved))))
        return float((np.abs(flips @ moved) >= observed).mean())
    generator = np.random.default_rng(seed)
    extreme = 1
    done = 0
    while done < rounds:
        rows = min(rounds - done, max(1, DRAWS // len(moved)))
        flips = generator.integers(0, 2, size=(rows, len(moved))) * 2.0 - 1.0
        extreme += int((np.abs(flips @ moved) >= observed).sum())
        done += rows
    return extreme / (rounds + 1)
