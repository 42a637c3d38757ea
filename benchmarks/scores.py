"""What the benchmarks that train measure: scores by arena, and intervals over arenas and seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, TypeVar

from astra.bench.statistics import Estimate, estimate
from astra.records.bench import BenchEpisode
from astra.records.score import Scored

SCORES = ("f1", "f1_plain", "precision", "recall", "success", "answer", "calls", "malformed")
RESAMPLES, CONFIDENCE = 10_000, 0.95
Values = dict[str, dict[str, float]]
"""score -> arena -> value."""
Item = TypeVar("Item", str, int)
"""What is resampled: an arena's id, or a step."""


def by_checkpoint(episodes: Iterable[BenchEpisode]) -> dict[str, Values]:
    """What was measured, by checkpoint. Every score is there, without arenas where none has it."""
    found: dict[str, Values] = {}
    for episode in episodes:
        values = found.setdefault(episode.checkpoint, {name: {} for name in SCORES})
        for name, by_arena in values.items():
            if isinstance(score := episode.scores.get(name), Scored):
                by_arena[episode.arena_id] = score.value
    return found


def paired(after: Mapping[Item, float], before: Mapping[Item, float]) -> dict[Item, float]:
    """The differences ``after - before`` of the items that both have."""
    return {item: value - before[item] for item, value in after.items() if item in before}


def pooled(seeds: Sequence[Mapping[Item, float]]) -> Estimate:
    """Each item averaged over the seeds that have it, then items resampled.

    Raises ValueError if there are none.
    """
    items = sorted({item for one in seeds for item in one})
    values = [fmean(one[item] for one in seeds if item in one) for item in items]
    return estimate(values, RESAMPLES, CONFIDENCE, seed=0)


def told(values: Sequence[float]) -> list[float] | None:
    """Mean, the ends of its 95 % interval, and over how many; None of nothing."""
    if not values:
        return None
    found = pooled([dict(enumerate(values))])
    return [round(found.mean, 3), round(found.low, 3), round(found.high, 3), found.n]


def joined(
    kept: dict[str, Any], found: dict[str, Any], sample: Callable[[dict[str, Any]], Any]
) -> dict[str, Any]:
    """``found`` and the rows of ``kept`` that it lacks, where ``sample`` of both is the same:
    policies are not always played in one run, or on one machine."""
    return kept | found if sample(kept) == sample(found) else found
