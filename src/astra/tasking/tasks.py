"""Stage ``tasks``: write, augment, score and select the tasks of each server (ASTRA section 3.2).

Each server has a pipeline of its own, and many of them run at once. Two things pass between
servers, both in the servers' order, so that the result does not depend on which is faster:

- donor questions: a question about one server, put to another, is an irrelevant one there;
- with ``near_duplicate_scope: set``, the questions kept so far. They are looked up only when
  every ask of a server is done, so that no server's asks depend on another's near-duplicates.
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
"""How many questions of one server may be put to others."""
OPEN_ASKS = 2
"""How many asks per server that may be open are enough to hold back the next one: as many as fill
the places in flight of two models."""

Outcome = Draft | Rejection
PendingOutcome = asyncio.Task[Outcome]


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
    """The selected tasks of every server, in the servers' order, and a rejection for each other.

    ``chains`` gives the chains of a server's id. ``live`` is the number of live servers, which
    share ``max_live_tasks``.
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
                if isinstance(outcome, Task):
                    selected += 1
                yield outcome
            _count(metrics, server, selected)


def _selected(
    outcomes: Iterable[Outcome], seen: Originals | None, limit: int | None
) -> Iterator[Task | Rejection]:
    """The scored tasks of one server whose questions are new, at most ``limit`` (None: all)."""
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
        except ExceptionGroup as errors:
            # The first one ended the others, and callers know it by its own type.
            raise errors.exceptions[0] from None
        finally:
            self.turns.leave(place)


@dataclass(frozen=True)
class _Batch:
    """Tasks of one server on their way through the judge, and those rejected before."""

    drafts: list[Draft] = field(default_factory=list[Draft])
    """The tasks that the judge was asked about, not scored yet."""
    scoring: list[PendingOutcome] = field(default_factory=list[PendingOutcome])
    """The judge's answers to them, in their order."""
    rejections: list[Rejection] = field(default_factory=list[Rejection])

    async def outcomes(self) -> list[Outcome]:
        """The rejections, then every scored task; waits for the judge."""
        return [*self.rejections, *[await pending for pending in self.scoring]]


class _Pipeline:
    """The way of one server from its chains to scored tasks.

    Every ask is made as soon as what it needs is known.
    """

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
        """What came of every base task, task without a full solution, and variant."""
        jobs = base_jobs(self._server, chains, self._config)
        self._shared.metrics.count("asked", len(jobs))
        base = await self._scored(
            [self._ask(write_task(self._server, job, self._teacher, self._config)) for job in jobs]
        )
        # All of these draw from one generator: the order of the lines fixes what each of them
        # draws, whenever the answers come.
        augmented = self._augment(base.drafts)
        withheld = self._withhold(base.drafts)
        left_out = self._leave_out(base.drafts)
        irrelevant = self._group.create_task(self._irrelevant(base.drafts))
        # Of two near-duplicates the earlier stays: base tasks go before variants.
        unsolvable = await self._scored([*withheld, *left_out])
        variants = await self._scored(augmented)
        batches = [base, unsolvable, await irrelevant, variants]
        return [outcome for batch in batches for outcome in await batch.outcomes()]

    def _ask(self, work: Coroutine[Any, Any, Outcome]) -> PendingOutcome:
        """Start ``work``; while it lasts, it counts among the open asks."""
        pending = self._group.create_task(work)
        self._shared.demand.opened(pending)
        return pending

    async def _scored(self, outcomes: Iterable[Outcome | PendingOutcome]) -> _Batch:
        """The outcomes in their order: a task that is no near-duplicate goes to the judge."""
        judge, thresholds = self._shared.models.judge, self._config.thresholds
        batch = _Batch()
        for awaited in outcomes:
            outcome = await awaited if isinstance(awaited, asyncio.Task) else awaited
            if isinstance(outcome, Rejection):
                batch.rejections.append(outcome)
            elif self._originals.add(outcome.task):
                batch.drafts.append(outcome)
                scoring = score_task(self._server, outcome, judge, thresholds)
                batch.scoring.append(self._ask(scoring))
            else:
                batch.rejections.append(outcome.rejected("near_duplicate"))
        return batch

    def _augment(self, base: Sequence[Draft]) -> list[PendingOutcome]:
        """Ask for variants of a share of the base tasks, the same number in each mode."""
        server, people, config = self._server, self._shared.people, self._config
        return [
            self._ask(augment_task(server, draft, mode, variant, people, self._teacher, config))
            for mode in MODES
            for draft in _share(base, config.augment.share, self._rng)
            for variant in range(getattr(config.augment, mode))
        ]

    def _withhold(self, base: Sequence[Draft]) -> list[Outcome]:
        """Take a tool that is needed out of view, for a share of the base tasks."""
        chosen = _share(base, self._config.unsolvable.missing_function, self._rng)
        return [withhold_function(self._server, draft, self._rng) for draft in chosen]

    def _leave_out(self, base: Sequence[Draft]) -> list[PendingOutcome]:
        """Ask for questions that leave out a value, for a share of the base tasks."""
        count = round(self._config.unsolvable.missing_parameter * len(base))
        candidates = [(draft, places) for draft in base if (places := droppable(draft.task.plan))]
        chosen = _sample(candidates, count, self._rng)
        drawn = [(draft, self._rng.choice(places)) for draft, places in chosen]
        return [
            self._ask(leave_out_parameter(self._server, draft, place, self._teacher, self._config))
            for draft, place in drawn
        ]

    async def _irrelevant(self, base: Sequence[Draft]) -> _Batch:
        """Put questions of earlier servers to this one, then hand some of its own on."""
        server, donors, rng = self._server, self._shared.donors, self._rng
        await self._shared.turns.come(self._place)
        count = round(self._config.unsolvable.irrelevant * len(base)) if donors else 0
        questions = [misplaced(server, donors, number, rng) for number in range(count)]
        donated = rng.sample(base, min(DONORS_PER_SERVER, len(base)))
        donors.extend(donor_of(server, draft.task) for draft in donated)
        # Left before the judge is asked: the next server need not wait for that.
        self._shared.turns.leave(self._place)
        return await self._scored(questions)


class Originals:
    """The questions so far, to tell near-duplicates of them.

    Tasks that share a question on purpose are compared within their kind only: a task without a
    tool it needs has its parent's question, one put to a foreign server has its donor's.
    """

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._indices: dict[str, NearDuplicates] = {}

    def add(self, task: Task) -> bool:
        """True if the task's question was new; it is then one of those compared with."""
        apart = (TaskKind.MISSING_FUNCTION, TaskKind.IRRELEVANT)
        group = task.kind.value if task.kind in apart else "plain"
        if group not in self._indices:
            self._indices[group] = NearDuplicates(self._threshold)
        return self._indices[group].add(task.question)


def _share(drafts: Sequence[Draft], share: float, rng: random.Random) -> list[Draft]:
    """A seeded sample of ``share`` of the drafts, in their order."""
    return _sample(drafts, round(share * len(drafts)), rng)


def _sample(items: Sequence[Any], count: int, rng: random.Random) -> list[Any]:
    """``count`` of the items (all if they are fewer), drawn without repeats, in their order."""
    chosen = set(rng.sample(range(len(items)), min(count, len(items))))
    return [item for index, item in enumerate(items) if index in chosen]
