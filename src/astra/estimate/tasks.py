"""Facts of table ``tasks``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from astra.estimate.asks import Amount
from astra.estimate.sampling import mean, sample
from astra.records.task import Task


@dataclass(frozen=True)
class TaskFacts:
    """The tasks of table ``tasks``."""

    rows: Amount
    steps: float
    """Planned calls of a task."""


def tasks_of(table: Path) -> TaskFacts:
    """Facts of table ``tasks``."""
    rows, some = sample(table, Task)
    return TaskFacts(rows, mean(len(task.plan) for task in some))
