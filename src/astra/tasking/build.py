"""Stage ``tasks``: server by server, write, augment, score and select (ASTRA section 3.2)."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from astra.llm.pool import map_bounded
from astra.llm.protocol import Teacher
from astra.records.base import content_id
from astra.records.graph import Chain
from astra.records.score import Rejection, Scored
from astra.records.task import Task, TaskKind
from astra.records.tool import Execution, ToolServer
from astra.store.metrics import StageMetrics
from astra.tasking.asks import MODES, Mode
from astra.tasking.augmenting import augment_task
from astra.tasking.config import TasksConfig
from astra.tasking.personas import load_people
from astra.tasking.scoring import score_task
from astra.tasking.unsolvable import (
    Donors,
    can_leave_out,
    donor_of,
    leave_out_parameter,
    misplaced,
    withhold_function,
)
from astra.tasking.writing import base_jobs, write_task
from astra.text.similarity import NearDuplicates

DONORS_PER_SERVER = 12
"""Questions of one server that others may be asked."""

Outcome = Task | Rejection
Item = TypeVar("Item")


class TaskBuilder:
    """Builds the tasks of one server at a time.

    Only donor questions pass between servers, and with ``near_duplicate_scope: set`` what was
    asked before. The latter is looked up last, after everything was asked: what is asked for
    one server never depends on another's near-duplicates.
    """

    def __init__(
        self,
        teacher: Teacher,
        judge: Teacher,
        config: TasksConfig,
        concurrency: int,
        metrics: StageMetrics,
    ) -> None:
        self._teacher = teacher
        self._judge = judge
        self._config = config
        self._concurrency = concurrency
        self._metrics = metrics
        self._people = load_people(Path(config.personas)) if config.personas else ()
        self._donors = Donors(config.unsolvable.donors)
        self._seen = Originals(config.near_duplicate)

    async def build(
        self, servers: Sequence[ToolServer], chains: Mapping[str, Sequence[Chain]]
    ) -> AsyncIterator[Task]:
        """Selected tasks of all servers, in the servers' order."""
        live = sum(server.execution is Execution.LIVE for server in servers)
        for server in servers:
            limit = None
            if server.execution is Execution.LIVE:
                limit = self._config.max_live_tasks // live
            for task in await self._server(server, chains.get(server.id, ()), limit):
                yield task

    async def _server(
        self, server: ToolServer, chains: Sequence[Chain], limit: int | None
    ) -> list[Task]:
        rng = random.Random(int(content_id(["tasks", server.id]), 16))
        jobs = base_jobs(server, chains, self._config)
        self._metrics.count("asked", len(jobs))
        teacher, config = self._teacher, self._config
        base = await self._gather(jobs, lambda job: write_task(server, job, teacher, config))
        base = self._distinct(base, Originals(config.near_duplicate))
        variants = await self._augment(server, base, rng)
        unsolvable = await self._unsolvable(server, base, rng)
        # Base tasks first: of two near-duplicates the original stays.
        candidates = self._distinct(
            [*base, *unsolvable, *variants], Originals(config.near_duplicate)
        )
        scored = await self._gather(
            candidates, lambda task: score_task(server, task, self._judge, config.thresholds)
        )
        if config.near_duplicate_scope == "set":
            scored = self._distinct(scored, self._seen)
        if limit is not None and len(scored) > limit:
            for task in scored[limit:]:
                self._metrics.reject(Rejection(item=task.id, reason="live_limit"))
            scored = scored[:limit]
        self._measure(server, scored)
        return scored

    async def _gather(
        self, items: Iterable[Item], work: Callable[[Item], Awaitable[Outcome]]
    ) -> list[Task]:
        tasks: list[Task] = []
        async for outcome in map_bounded(items, work, self._concurrency):
            if isinstance(outcome, Rejection):
                self._metrics.reject(outcome)
            else:
                tasks.append(outcome)
        return tasks

    def _distinct(self, tasks: Sequence[Task], originals: Originals) -> list[Task]:
        kept: list[Task] = []
        for task in tasks:
            if originals.add(task):
                kept.append(task)
            else:
                self._metrics.reject(Rejection(item=task.id, reason="near_duplicate"))
        return kept

    async def _augment(
        self, server: ToolServer, base: Sequence[Task], rng: random.Random
    ) -> list[Task]:
        settings = self._config.augment
        variants: list[Task] = []
        for mode in MODES:
            wanted = [
                (task, variant)
                for task in _share(base, settings.share, rng)
                for variant in range(getattr(settings, mode))
            ]

            def work(item: tuple[Task, int], mode: Mode = mode) -> Awaitable[Outcome]:
                task, variant = item
                return augment_task(
                    server, task, mode, variant, self._people, self._teacher, self._config
                )

            variants += await self._gather(wanted, work)
        return variants

    async def _unsolvable(
        self, server: ToolServer, base: Sequence[Task], rng: random.Random
    ) -> list[Task]:
        shares = self._config.unsolvable
        outcomes: list[Outcome] = [
            withhold_function(server, task, rng)
            for task in _share(base, shares.missing_function, rng)
        ]
        wanted = round(shares.missing_parameter * len(base))
        eligible = [task for task in base if can_leave_out(task)]
        for task in _sample(eligible, wanted, rng):
            outcomes.append(
                await leave_out_parameter(server, task, self._teacher, self._config, rng)
            )
        if self._donors:
            wanted = round(shares.irrelevant * len(base))
            outcomes += [misplaced(server, self._donors, place, rng) for place in range(wanted)]
        self._donors.extend(
            donor_of(server, task)
            for task in rng.sample(list(base), min(DONORS_PER_SERVER, len(base)))
        )
        tasks: list[Task] = []
        for outcome in outcomes:
            if isinstance(outcome, Rejection):
                self._metrics.reject(outcome)
            else:
                tasks.append(outcome)
        return tasks

    def _measure(self, server: ToolServer, tasks: Sequence[Task]) -> None:
        metrics = self._metrics
        metrics.count("tasks", len(tasks))
        metrics.count(f"tasks_{server.execution.value}", len(tasks))
        metrics.distribution("kinds", (task.kind.value for task in tasks))
        metrics.distribution("augmentations", (task.augmentation for task in tasks))
        metrics.distribution("calls_per_task", (len(task.plan) for task in tasks))
        metrics.distribution("domains", (server.domain for _ in tasks))
        metrics.distribution("languages", (task.language for task in tasks))
        metrics.distribution("question_words", (len(task.question.split()) for task in tasks))
        for name in ("quality", "realism", "necessity", "difficulty", "uniqueness"):
            labels = (task.scores[name] for task in tasks)
            metrics.distribution(
                name, (score.value if isinstance(score, Scored) else "unscored" for score in labels)
            )


class Originals:
    """Questions without near-duplicates.

    Tasks that share a question on purpose are kept apart: a task without a tool it needs has
    its parent's, one put to a foreign server has its donor's.
    """

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._indices: dict[str, NearDuplicates] = {}

    def add(self, task: Task) -> bool:
        """True if the task's question was new among those of its kind."""
        apart = (TaskKind.MISSING_FUNCTION, TaskKind.IRRELEVANT)
        group = task.kind.value if task.kind in apart else "plain"
        index = self._indices.setdefault(group, NearDuplicates(self._threshold))
        return index.add(task.question)


def _share(tasks: Sequence[Task], share: float, rng: random.Random) -> list[Task]:
    """A seeded sample of ``share`` of the tasks, in their order."""
    return _sample(tasks, round(share * len(tasks)), rng)


def _sample(tasks: Sequence[Task], count: int, rng: random.Random) -> list[Task]:
    chosen = set(rng.sample(range(len(tasks)), min(count, len(tasks))))
    return [task for index, task in enumerate(tasks) if index in chosen]
