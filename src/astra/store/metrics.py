"""A stage's metrics: counts in, out and dropped by reason, and tables that are DVC plots.

Only what the declared inputs determine goes in, so that a rebuild changes nothing. Timings,
tokens and cost belong to the run (tracking), not here.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from astra.records.score import Rejection
from astra.store.replacing import replacing


class StageMetrics:
    """Collects one stage's counts and writes ``metrics/<stage>.json`` and ``plots/<stage>/``."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.counts: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.tries: Counter[str] = Counter()
        """Failed tries of items that went on, by reason."""
        self.values: dict[str, Any] = {}
        self.on_count: Callable[[], None] = lambda: None
        """What is called after each count and drop; progress lines follow the stage that way."""
        self._distributions: dict[str, Counter[str]] = {}
        self._plots: dict[str, list[Sequence[object]]] = {}

    def count(self, name: str, by: int = 1) -> None:
        """Add to a count. Raises ValueError for the name of a value."""
        if name in self.values:
            raise ValueError(f"metrics of {self.stage}: {name!r} is a value already")
        self.counts[name] += by
        self.on_count()

    def reject(self, rejection: Rejection) -> None:
        """Count one dropped item, or one failed try, by its reason.

        The row itself is written by ``DataStage.reject``.
        """
        (self.dropped if rejection.final else self.tries)[rejection.reason] += 1
        self.on_count()

    def value(self, name: str, value: Any) -> None:
        """Record a deterministic figure (float, int or nested mapping)."""
        if name in self.counts or name in ("dropped", "tries"):
            raise ValueError(f"metrics of {self.stage}: {name!r} is a count already")
        self.values[name] = value

    def distribution(self, name: str, items: Iterable[object]) -> None:
        """Add items to a histogram that becomes ``plots/<stage>/<name>.csv``."""
        self._distributions.setdefault(name, Counter()).update(str(item) for item in items)

    def plot(self, name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """A table that becomes ``plots/<stage>/<name>.csv``."""
        self._plots[name] = [columns, *rows]

    def document(self) -> dict[str, Any]:
        """What ``metrics/<stage>.json`` holds."""
        return {
            **dict(sorted(self.counts.items())),
            "dropped": dict(sorted(self.dropped.items())),
            **({"tries": dict(sorted(self.tries.items()))} if self.tries else {}),
            **self.values,
        }

    def write(self, metrics: Path = Path("metrics"), plots: Path = Path("plots")) -> None:
        """Write both; the plots folder holds exactly this run's tables."""
        write_json(metrics / f"{self.stage}.json", self.document())
        folder = plots / self.stage
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob("*.csv"):
            stale.unlink()
        tables = {name: histogram_rows(counts) for name, counts in self._distributions.items()}
        for name, rows in (tables | self._plots).items():
            with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as handle:
                csv.writer(handle, lineterminator="\n").writerows(rows)


def histogram_rows(histogram: Mapping[str, int]) -> list[Sequence[object]]:
    """``value`` and ``count`` below their names; numeric values in order, then others by name."""

    def order(label: str) -> tuple[int, float, str]:
        try:
            return (0, float(label), label)
        except ValueError:
            return (1, 0.0, label)

    labels = sorted(histogram, key=order)
    return [("value", "count"), *((label, histogram[label]) for label in labels)]


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write indented JSON atomically; NaN is refused."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    with replacing(path) as partial:
        partial.write_text(text + "\n", encoding="utf-8")
