"""Means with bootstrap intervals, and paired differences. Pure functions of their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DRAWS = 4_000_000
"""Resampled values held in memory at a time."""


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
