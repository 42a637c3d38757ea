"""What is measured of the selected tasks, one by one and as a set."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from astra.records.graph import ArgumentOrigin
from astra.records.score import Scored
from astra.records.task import Task, TaskKind
from astra.records.tool import ToolServer
from astra.store.metrics import StageMetrics
from astra.tasking.families import mean_shared_wording
from astra.text.words import CJK

_NAME = re.compile(rf"[A-Z][\w.'-]*( [A-Z][\w.'-]*)+|[{CJK}]{{2,8}}")
"""A made-up or real name among values: capitalised words, or a few characters."""


def measure(metrics: StageMetrics, task: Task) -> None:
    """Add one selected task to the stage's distributions."""
    metrics.distribution("kinds", [task.kind.value])
    metrics.distribution("augmentations", [task.augmentation])
    metrics.distribution("calls_per_task", [len(task.plan)])
    metrics.distribution("languages", [task.language])
    metrics.distribution("question_words", [len(task.question.split())])
    for name in ("quality", "realism", "necessity", "difficulty", "uniqueness"):
        score = task.scores[name]
        metrics.distribution(name, [score.value if isinstance(score, Scored) else "unscored"])


class SetMeasures:
    """How much selected tasks have in common; tasks of one server come one after the other."""

    def __init__(self, metrics: StageMetrics) -> None:
        self._metrics = metrics
        self._servers: dict[str, tuple[str, str]] = {}
        self._kinds: Counter[str] = Counter()
        self._names: Counter[str] = Counter()
        self._originals = 0
        self._families: dict[str, list[Task]] = {}
        """Those of the server whose tasks are coming, by the id of the original."""
        self._server_id = ""
        self._shared = 0.0
        self._compared = 0

    def know(self, server: ToolServer) -> None:
        """Remember what is counted of a server's tasks."""
        self._servers[server.id] = (server.execution.value, server.domain)

    def add(self, task: Task) -> Task:
        """Count a task; returns it."""
        execution, domain = self._servers[task.server_id]
        self._metrics.count("tasks")
        self._metrics.count(f"tasks_{execution}")
        self._metrics.distribution("domains", [domain])
        self._kinds[task.kind.value] += 1
        if task.server_id != self._server_id:
            self._close_families()
            self._server_id = task.server_id
        if task.kind in (TaskKind.CHAIN, TaskKind.SERVER):
            self._families.setdefault(task.parent_id or task.id, []).append(task)
            if task.augmentation == "none":
                self._originals += 1
                self._names.update(set(_names(task)))
        return task

    def _close_families(self) -> None:
        for family in self._families.values():
            if len(family) > 1:
                self._shared += mean_shared_wording(family)
                self._compared += 1
        self._families.clear()

    def finish(self) -> None:
        """Record what all tasks together show.

        ``family_shared_wording`` is the mean share of word pairs that two tasks of a family have
        in common, ``top_name`` the name that most originals state, ``unsolvable_shares`` what the
        kinds without a full solution make up.
        """
        self._close_families()
        total = self._kinds.total()
        if total:
            shares = {
                kind.value: round(self._kinds[kind.value] / total, 4)
                for kind in TaskKind
                if kind not in (TaskKind.CHAIN, TaskKind.SERVER)
            }
            self._metrics.value("unsolvable_shares", shares)
        if self._compared:
            mean = round(self._shared / self._compared, 4)
            self._metrics.value("family_shared_wording", mean)
        if self._names:
            name, times = min(self._names.items(), key=lambda item: (-item[1], item[0]))
            share = round(times / self._originals, 4)
            self._metrics.value("top_name", {"name": name, "tasks": times, "share": share})


def _names(task: Task) -> Iterator[str]:
    """The names among the values that a task states."""
    for step in task.plan:
        for source in step.arguments.values():
            if source.origin is ArgumentOrigin.TASK:
                yield from _names_in(source.value)


def _names_in(value: object) -> Iterator[str]:
    if isinstance(value, str) and _NAME.fullmatch(value):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _names_in(part)
