"""Facts of tables ``chains`` and ``tasks``: how many calls their rows plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from astra.estimate.asks import Amount
from astra.estimate.sampling import Row, mean, sample
from astra.records.graph import Chain
from astra.records.task import Task


@dataclass(frozen=True)
class PlanFacts:
    """The chains or tasks of a table."""

    rows: Amount
    steps: float
    """Planned calls of a row."""


def chains_of(table: Path) -> PlanFacts:
    """Facts of table ``chains``."""
    return _facts(table, Chain, lambda chain: len(chain.steps))


def tasks_of(table: Path) -> PlanFacts:
    """Facts of table ``tasks``."""
    return _facts(table, Task, lambda task: len(task.plan))


def _facts(table: Path, model: type[Row], calls: Callable[[Row], int]) -> PlanFacts:
    rows, some = sample(table, model)
    return PlanFacts(rows, mean(map(calls, some)))
