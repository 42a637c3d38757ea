"""Stage ``tasks``: write, augment, score and select the tasks of each server (ASTRA section 3.2).

A pipeline per server, many at once. Only donor questions pass between servers, in the servers'
order, and with ``near_duplicate_scope: set`` what was asked before. The latter is looked up last,
after everything was asked: what is asked for one server never depends on another's
near-duplicates.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from astra.llm.pool import map_bounded
from astra.llm.protocol import Teacher
from astra.records.base import content_id
from astra.records.graph import Chain
from astra.records.score import Rejection, Scored
from astra.records.task import Task, TaskKind
from astra.records.tool import Execution, ToolServer
from astra.store.metrics import StageMetrics
from astra.tasking.asks import MODES
from astra.tasking.augmenting import augment_task
from astra.tasking.config import TasksConfig
from astra.tasking.drafts import Draft
from astra.tasking.personas import load_people
from astra.tasking.scoring import score_task
from astra.tasking.turns import Demand, Turns
from astra.tasking.unsolvable import (
    Donors,
    donor_of,
    droppable,
    leave_out_parameter,
    misplaced,
    withhold_function,
)
from astra.tasking.writing import base_jobs, write_task
from astra.text.similarity import NearDuplicates

DONORS_PER_SERVER = 12
"""Questions of one server that others may be asked."""
OPEN_ASKS = 2
"""Asks open before the next server is begun, times the servers that may be open: enough for the
places of two models."""

Outcome = Draft | Rejection
Asked = asyncio.Task[Outcome]


@dataclass(frozen=True)
class Models:
    """Who writes tasks, and who scores them."""

    teacher: Teacher
    judge: Teacher


async def tasks(
    servers: Iterable[ToolServer],
    chains: Callable[[str], Sequence[Chain]],
    models: Models,
    config: TasksConfig,
    live: int,
    open_items: int,
    metrics: StageMetrics,
) -> AsyncGenerator[Task | Rejection, None]:
    """The selected tasks of every server, in the servers' order, and what was not selected.

    ``chains`` gives those of a server's id; ``live`` of the servers are live and share
    ``max_live_tasks``.
    """
    shared = _Shared(models, config, metrics, open_items)
    seen = Originals(config.near_duplicate) if config.near_duplicate_scope == "set" else None

    async def work(item: tuple[int, ToolServer]) -> tuple[ToolServer, list[Outcome]]:
        place, server = item
        return server, await shared.outcomes(place, server, chains(server.id))

    items = shared.demand.due(enumerate(servers))
    async with aclosing(map_bounded(items, work, open_items)) as results:
        async for server, outcomes in results:
            limit = None
            if server.execution is Execution.LIVE:
                limit = config.max_live_tasks // live
            selected = 0
            for outcome in _selected(outcomes, seen, limit):
                selected += isinstance(outcome, Task)
                yield outcome
            _count(metrics, server, selected)


def _selected(
    outcomes: Iterable[Outcome], seen: Originals | None, limit: int | None
) -> Iterator[Task | Rejection]:
    """The scored tasks of one server that were not asked before, at most ``limit``."""
    selected = 0
    for outcome in outcomes:
        if isinstance(outcome, Rejection):
            yield outcome
        elif seen is not None and not seen.add(outcome.task):
            yield outcome.rejected("near_duplicate")
        elif selected == limit:
            yield outcome.rejected("live_limit")
        else:
            selected += 1
            yield outcome.task


def _count(metrics: StageMetrics, server: ToolServer, selected: int) -> None:
    metrics.count("servers")
    metrics.count("tasks", selected)
    metrics.count(f"tasks_{server.execution.value}", selected)
    metrics.distribution("domains", [server.domain] * selected)


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


class _Shared:
    """What the pipelines of all servers have in common."""

    def __init__(
        self, models: Models, config: TasksConfig, metrics: StageMetrics, open_items: int
    ) -> None:
        self.models = models
        self.config = config
        self.metrics = metrics
        self.people = load_people(Path(config.personas)) if config.personas else ()
        self.donors = Donors(config.unsolvable.donors)
        self.turns = Turns()
        self.demand = Demand(OPEN_ASKS * open_items)

    async def outcomes(
        self, place: int, server: ToolServer, chains: Sequence[Chain]
    ) -> list[Outcome]:
        """What came of one server: base tasks, those without a full solution, variants."""
        try:
            async with asyncio.TaskGroup() as group:
                return await _Pipeline(self, place, server, group).run(chains)
        except ExceptionGroup as failed:
            # The first one; it ended the others, and callers know it by its own type.
            raise failed.exceptions[0] from None
        finally:
            self.turns.leave(place)


@dataclass(frozen=True)
class _Kept:
    """Tasks on their way through the judge, and what fell out before."""

    drafts: list[Draft] = field(default_factory=list[Draft])
    scoring: list[Asked] = field(default_factory=list[Asked])
    rejections: list[Rejection] = field(default_factory=list[Rejection])

    async def outcomes(self) -> list[Outcome]:
        return [*self.rejections, *[await one for one in self.scoring]]


class _Pipeline:
    """One server from its chains to scored tasks. Every ask is made as soon as it is known."""

    def __init__(
        self, shared: _Shared, place: int, server: ToolServer, group: asyncio.TaskGroup
    ) -> None:
        self._shared = shared
        self._config = shared.config
        self._teacher = shared.models.teacher
        self._place = place
        self._server = server
        self._group = group
        self._rng = random.Random(int(content_id(["tasks", server.id]), 16))
        self._originals = Originals(shared.config.near_duplicate)

    async def run(self, chains: Sequence[Chain]) -> list[Outcome]:
        jobs = base_jobs(self._server, chains, self._config)
        self._shared.metrics.count("asked", len(jobs))
        base = await self._scored(
            [self._ask(write_task(self._server, job, self._teacher, self._config)) for job in jobs]
        )
        # Drawn at once and in this order, whenever the answers come.
        augmented = self._augment(base.drafts)
        withheld = self._withhold(base.drafts)
        left_out = self._leave_out(base.drafts)
        foreign = self._group.create_task(self._irrelevant(base.drafts))
        # Of two near-duplicates the earlier stays: base tasks go before variants.
        unsolvable = await self._scored([*withheld, *left_out])
        variants = await self._scored(augmented)
        kept = [base, unsolvable, await foreign, variants]
        return [outcome for one in kept for outcome in await one.outcomes()]

    def _ask(self, work: Coroutine[Any, Any, Outcome]) -> Asked:
        asked = self._group.create_task(work)
        self._shared.demand.opened(asked)
        return asked

    async def _scored(self, made: Iterable[Outcome | Asked]) -> _Kept:
        """What was made, in its order: a task that is no near-duplicate goes to the judge."""
        judge, thresholds = self._shared.models.judge, self._config.thresholds
        kept = _Kept()
        for one in made:
            outcome = await one if isinstance(one, asyncio.Task) else one
            if isinstance(outcome, Rejection):
                kept.rejections.append(outcome)
            elif self._originals.add(outcome.task):
                kept.drafts.append(outcome)
                scoring = score_task(self._server, outcome, judge, thresholds)
                kept.scoring.append(self._ask(scoring))
            else:
                kept.rejections.append(outcome.rejected("near_duplicate"))
        return kept

    def _augment(self, base: Sequence[Draft]) -> list[Asked]:
        server, people, config = self._server, self._shared.people, self._config
        return [
            self._ask(augment_task(server, draft, mode, variant, people, self._teacher, config))
            for mode in MODES
            for draft in _share(base, config.augment.share, self._rng)
            for variant in range(getattr(config.augment, mode))
        ]

    def _withhold(self, base: Sequence[Draft]) -> list[Outcome]:
        chosen = _share(base, self._config.unsolvable.missing_function, self._rng)
        return [withhold_function(self._server, draft, self._rng) for draft in chosen]

    def _leave_out(self, base: Sequence[Draft]) -> list[Asked]:
        wanted = round(self._config.unsolvable.missing_parameter * len(base))
        places = [(draft, found) for draft in base if (found := droppable(draft.task.plan))]
        chosen = _sample(places, wanted, self._rng)
        drawn = [(draft, self._rng.choice(found)) for draft, found in chosen]
        return [
            self._ask(leave_out_parameter(self._server, draft, at, self._teacher, self._config))
            for draft, at in drawn
        ]

    async def _irrelevant(self, base: Sequence[Draft]) -> _Kept:
        """Questions of the servers before; then this one hands its own on."""
        server, donors, rng = self._server, self._shared.donors, self._rng
        await self._shared.turns.come(self._place)
        wanted = round(self._config.unsolvable.irrelevant * len(base)) if donors else 0
        made = [misplaced(server, donors, place, rng) for place in range(wanted)]
        given = rng.sample(base, min(DONORS_PER_SERVER, len(base)))
        donors.extend(donor_of(server, draft.task) for draft in given)
        self._shared.turns.leave(self._place)
        return await self._scored(made)


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
        if group not in self._indices:
            self._indices[group] = NearDuplicates(self._threshold)
        return self._indices[group].add(task.question)


def _share(drafts: Sequence[Draft], share: float, rng: random.Random) -> list[Draft]:
    """A seeded sample of ``share`` of the drafts, in their order."""
    return _sample(drafts, round(share * len(drafts)), rng)


def _sample(items: Sequence[Any], count: int, rng: random.Random) -> list[Any]:
    chosen = set(rng.sample(range(len(items)), min(count, len(items))))
    return [item for index, item in enumerate(items) if index in chosen]
