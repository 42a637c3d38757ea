"""Curves of a training run by step, as DVC plots."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from astra.store.metrics import StageMetrics


class Curves:
    """Collects (step, value) pairs by name; ``plot`` makes one CSV file of each."""

    def __init__(self) -> None:
        self._points: dict[str, dict[int, float]] = {}

    def add(self, name: str, step: int, value: float) -> None:
        """Record a value; NaN and infinities are left out."""
        if math.isfinite(value):
            self._points.setdefault(name, {})[step] = value

    def values(self, name: str) -> list[float]:
        """A curve's values in the order of steps; empty if nothing was added."""
        points = self._points.get(name, {})
        return [points[step] for step in sorted(points)]

    def last_step(self, name: str) -> int | None:
        """The newest step that has a value."""
        return max(self._points.get(name, {}), default=None)

    def points(self) -> dict[str, list[tuple[int, float]]]:
        """Everything added so far, as a checkpoint keeps it."""
        return {name: sorted(points.items()) for name, points in self._points.items()}

    def replace(self, points: Mapping[str, Iterable[tuple[int, float]]]) -> None:
        """Continue from ``points`` of a checkpoint; what was added since is dropped."""
        self._points = {name: dict(pairs) for name, pairs in points.items()}

    def plot(self, metrics: StageMetrics) -> None:
        """One plot each, with columns step and the curve's name."""
        for name, points in self._points.items():
            rows = ((step, round(points[step], 4)) for step in sorted(points))
            metrics.plot(name, ["step", name], rows)


def tail_mean(values: list[float], count: int = 10) -> float | None:
    """Mean of the last ``count`` values, or None of nothing."""
    chosen = values[-count:]
    return round(sum(chosen) / len(chosen), 4) if chosen else None
