"""The way of one server's tasks: written, scored, augmented, made unsolvable, scored again.

Every draw is made by a hash of what it is about: more samples or variants add to what was asked
for before, and take nothing away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any, TypeVar

from astra.llm.protocol import Teacher
from astra.records.graph import Chain
from astra.records.score import Rejection
from astra.records.task import Task, TaskKind
from astra.records.tool import ToolServer
from astra.store.metrics import StageMetrics
from astra.tasking.augmenting import Augmenter
from astra.tasking.config import TasksConfig
from astra.tasking.demand import Demand
from astra.tasking.drafts import Draft
from astra.tasking.families import TaskFamily
from astra.tasking.personas import load_people
from astra.tasking.scoring import score_task
from astra.tasking.spread import ticket
from astra.tasking.unsolvable import (
    Donor,
    check_unsolved,
    donor_of,
    leave_out_parameter,
    misplaced,
    place_to_leave_out,
    withhold_function,
)
from astra.tasking.variant_asks import MODES, Mode
from astra.tasking.writing import base_jobs, write_task
from astra.text.similarity import NearDuplicates

DONORS_PER_SERVER = 12
"""How many questions of one server may be put to others."""
OPEN_ASKS = 2
"""How many asks per server that may be open are enough to hold back the next one: as many as fill
the places in flight of two models."""
MOST_TRIES = 3
"""How many tasks are tried at most for each one without a solution that is wanted."""

Made = TypeVar("Made")
Outcome = Draft | Rejection
PendingOutcome = asyncio.Task[Outcome]
Making = Callable[[], Coroutine[Any, Any, Outcome]]
"""Starts making one task without a solution."""


@dataclass(frozen=True)
class Models:
    """Who writes tasks, and who judges them."""

    teacher: Teacher
    judge: Teacher


class Pipelines:
    """The pipelines of all servers, and what they have in common."""

    def __init__(
        self,
        models: Models,
        config: TasksConfig,
        share: float,
        metrics: StageMetrics,
        open_items: int,
        live: int,
    ) -> None:
        """``share``: of the base tasks, those that are written. ``live``: how many servers are."""
        self.models = models
        self.config = config
        self.share = share
        self.live = live
        self.metrics = metrics
        self.people = load_people(Path(config.personas)) if config.personas else ()
        self.demand = Demand(OPEN_ASKS * open_items)

    async def own(self, server: ToolServer, chains: Sequence[Chain]) -> OwnTasks:
        """What comes of one server by itself: base tasks, variants, those without a full
        solution but for questions of other servers.
        """
        await self.demand.few()
        return await self._grouped(server, lambda pipeline: pipeline.own(chains))

    async def irrelevant(
        self, server: ToolServer, fitting: Sequence[Donor], wanted: int
    ) -> list[Outcome]:
        """What came of ``wanted`` questions of other servers, put to this one."""
        return await self._grouped(server, lambda pipeline: pipeline.irrelevant(fitting, wanted))

    async def _grouped(
        self, server: ToolServer, run: Callable[[_Pipeline], Awaitable[Made]]
    ) -> Made:
        try:
            async with asyncio.TaskGroup() as group:
                return await run(_Pipeline(self, server, group))
        except ExceptionGroup as errors:
            # The first one ended the others, and callers know it by its own type.
            raise errors.exceptions[0] from None


@dataclass(frozen=True)
class OwnTasks:
    """What came of one server by itself."""

    server: ToolServer
    outcomes: tuple[Outcome, ...]
    base: tuple[Draft, ...]
    """The base tasks among them that passed."""
    irrelevant_wanted: int
    """How many questions of other servers are to be put to it."""


def donated(one: OwnTasks) -> list[Donor]:
    """The questions of a server that may be put to others."""
    chosen = _by_hash("donated", one.base)[:DONORS_PER_SERVER]
    return [donor_of(one.server, draft.task) for draft in chosen]


@dataclass(frozen=True)
class _Results:
    """What came of one step: the tasks that passed it, and the rejections."""

    drafts: list[Draft] = field(default_factory=list[Draft])
    rejections: list[Rejection] = field(default_factory=list[Rejection])

    def add(self, outcome: Outcome) -> None:
        if isinstance(outcome, Draft):
            self.drafts.append(outcome)
        else:
            self.rejections.append(outcome)

    def outcomes(self) -> list[Outcome]:
        """All of it, rejections first."""
        return [*self.rejections, *self.drafts]

    def extend(self, other: _Results) -> None:
        self.drafts.extend(other.drafts)
        self.rejections.extend(other.rejections)


class _Pipeline:
    """The way of one server from its chains to scored tasks."""

    def __init__(self, shared: Pipelines, server: ToolServer, group: asyncio.TaskGroup) -> None:
        self._shared = shared
        self._config = shared.config
        self._metrics = shared.metrics
        self._teacher = shared.models.teacher
        self._judge = shared.models.judge
        self._server = server
        self._group = group
        self._originals = Originals(shared.config.near_duplicate)

    async def own(self, chains: Sequence[Chain]) -> OwnTasks:
        """What came of every base task and variant, and of those made unsolvable by themselves."""
        base = await self._written(chains)
        variants = await self._augmented(base.drafts)
        solvable = [*base.drafts, *variants.drafts]
        unsolvable = await asyncio.gather(self._withheld(solvable), self._left_out(solvable))
        parts = (base, variants, *unsolvable)
        return OwnTasks(
            server=self._server,
            outcomes=tuple(outcome for part in parts for outcome in part.outcomes()),
            base=tuple(base.drafts),
            irrelevant_wanted=self._wanted(TaskKind.IRRELEVANT, solvable),
        )

    async def irrelevant(self, fitting: Sequence[Donor], wanted: int) -> list[Outcome]:
        """Questions of other servers put to this one."""

        async def made(place: int) -> Outcome:
            return misplaced(self._server, fitting, place)

        makers = [partial(made, place) for place in range(MOST_TRIES * wanted)]
        return (await self._drawn(wanted, makers)).outcomes()

    def _ask(self, work: Coroutine[Any, Any, Outcome]) -> PendingOutcome:
        """Start ``work``; while it lasts, it counts among the open asks."""
        pending = self._group.create_task(work)
        self._shared.demand.opened(pending)
        return pending

    async def _written(self, chains: Sequence[Chain]) -> _Results:
        """The base tasks; earlier samples go before later ones, which may be their duplicates."""
        jobs = base_jobs(self._server, chains, self._config, self._shared.share, self._shared.live)
        jobs.sort(key=lambda job: job.ask.sample)
        self._metrics.count("asked", len(jobs))
        asked = [
            self._ask(write_task(self._server, job, self._teacher, self._config, self._metrics))
            for job in jobs
        ]
        results = await self._judged(asked)
        results.rejections.extend(failed for job in jobs for failed in job.failed)
        return results

    async def _augmented(self, base: Sequence[Draft]) -> _Results:
        """Variants of a share of the tasks that the judge let pass, drawn for each mode."""
        shared, config = self._shared, self._config
        families = {
            draft.task.id: TaskFamily(draft.task, config.augment.max_shared) for draft in base
        }
        augmenter = Augmenter(self._server, shared.people, self._teacher, self._judge, config)
        drawn: list[tuple[Draft, Mode, int]] = [
            (draft, mode, number)
            for mode in MODES
            for number in range(getattr(config.augment, mode))
            for draft in base
            if ticket("augment", draft.task.id, mode) < config.augment.share
        ]
        asked = [self._ask(augmenter.variant(draft, mode, number)) for draft, mode, number in drawn]
        return await self._judged(asked, families)

    async def _judged(
        self, asked: Iterable[PendingOutcome], families: dict[str, TaskFamily] | None = None
    ) -> _Results:
        """The tasks in their order, scored: those that are new, and in their family no copy."""
        results, scoring = _Results(), list[PendingOutcome]()
        for pending in asked:
            outcome = await pending
            if isinstance(outcome, Rejection):
                results.rejections.append(outcome)
            elif families is not None and not families[outcome.task.parent_id or ""].add(
                outcome.task
            ):
                results.rejections.append(outcome.rejected("family_copy"))
            elif not self._originals.add(outcome.task):
                results.rejections.append(outcome.rejected("near_duplicate"))
            else:
                scoring.append(self._ask(self._scored(outcome)))
        for pending in scoring:
            results.add(await pending)
        return results

    async def _scored(self, draft: Draft) -> Outcome:
        """The draft with its scores; one that must not be solvable is looked at for that first."""
        if draft.task.kind in (TaskKind.MISSING_FUNCTION, TaskKind.IRRELEVANT):
            outcome = await check_unsolved(self._server, draft, self._judge)
            if isinstance(outcome, Rejection):
                return outcome
            draft = outcome
        thresholds = self._config.thresholds
        return await score_task(self._server, draft, self._judge, thresholds, self._metrics)

    async def _withheld(self, solvable: Sequence[Draft]) -> _Results:
        """Tasks with a tool that they need out of view."""
        kind = TaskKind.MISSING_FUNCTION

        async def made(draft: Draft) -> Outcome:
            return withhold_function(draft)

        fitting = solvable if len(self._server.tools) > 1 else ()
        makers = [partial(made, draft) for draft in _by_hash(kind, fitting)]
        return await self._drawn(self._wanted(kind, solvable), makers)

    async def _left_out(self, solvable: Sequence[Draft]) -> _Results:
        """Tasks that leave out a value."""
        kind = TaskKind.MISSING_PARAMETER
        server, teacher, config = self._server, self._teacher, self._config
        makers = [
            partial(leave_out_parameter, server, draft, place, teacher, config)
            for draft in _by_hash(kind, solvable)
            if (place := place_to_leave_out(server, draft.task)) is not None
        ]
        return await self._drawn(self._wanted(kind, solvable), makers)

    def _wanted(self, kind: TaskKind, solvable: Sequence[Draft]) -> int:
        """How many tasks of a kind without a solution go with these: each draws for itself."""
        rate = self._config.unsolvable.rate(kind)
        return sum(max(0, ceil(rate - ticket(kind, draft.task.id))) for draft in solvable)

    async def _drawn(self, wanted: int, makers: Sequence[Making]) -> _Results:
        """The first ``wanted`` tasks that are made and pass: one that fails makes way for the next.

        At most ``MOST_TRIES`` for each that is wanted are made.
        """
        results = _Results()
        tries = iter(makers[: MOST_TRIES * wanted])
        while missing := wanted - len(results.drafts):
            made = [self._ask(making()) for making in islice(tries, missing)]
            if not made:
                break
            results.extend(await self._judged(made))
        return results


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


def _by_hash(draw: str, drafts: Sequence[Draft]) -> list[Draft]:
    """The drafts in an order of their own for each draw."""
    return sorted(drafts, key=lambda draft: ticket(draw, draft.task.id))
