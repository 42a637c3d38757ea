"""Which tasks stay where only so many may: from every stratum its share, evenly over servers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from astra.records.base import content_id
from astra.records.task import Task

Stratum = tuple[str, int, str]
Group = TypeVar("Group", bound=Hashable)


def ticket(*key: object) -> float:
    """A number from [0, 1) that depends on ``key`` alone."""
    return int(content_id([str(part) for part in key]), 16) / 16**16


def stratum(task: Task) -> Stratum:
    """What the share of is kept: tasks of one kind, number of calls and way of augmentation."""
    return task.kind.value, len(task.plan), task.augmentation


def spread(tasks: Iterable[tuple[str, str, Stratum]], limit: int) -> frozenset[str]:
    """The ids of ``limit`` of the tasks (all if they are fewer): id, server and stratum of each.

    Each stratum keeps its share of the whole, and within it each server its share. Which tasks of
    a server stay is decided by hash: a further task elsewhere moves few of them.
    """
    cells: dict[tuple[Stratum, str], list[str]] = {}
    for task_id, server_id, of in tasks:
        cells.setdefault((of, server_id), []).append(task_id)
    for (_, server_id), ids in cells.items():
        ids.sort(key=lambda task_id: ticket("cell", server_id, task_id))
    within = _places(cells)
    strata: dict[Stratum, list[str]] = {}
    for (of, _), ids in cells.items():
        strata.setdefault(of, []).extend(ids)
    for ids in strata.values():
        ids.sort(key=lambda task_id: (within[task_id], task_id))
    overall = _places(strata)
    return frozenset(sorted(overall, key=lambda task_id: (overall[task_id], task_id))[:limit])


def _places(groups: Mapping[Group, Sequence[str]]) -> dict[str, float]:
    """Each id's place in its group, from 0 to 1; groups begin at different places."""
    return {
        task_id: (rank + ticket("group", group)) / len(ids)
        for group, ids in groups.items()
        for rank, task_id in enumerate(ids)
    }
