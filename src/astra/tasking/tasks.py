"""Stage ``tasks``: write, augment, score and select the tasks of each server (ASTRA section 3.2).

Each server has a pipeline of its own, and many of them run at once. Two things pass between
servers, both in the servers' order, so that the result does not depend on which is faster:

- donor questions: a question about one server, put to another, is an irrelevant one there. So a
  server's pipeline has two parts, and between them it is handed questions of those before it;
- with ``near_duplicate_scope: set``, the questions kept so far. They are looked up only when
  every ask of a server is done, so that no server's asks depend on another's near-duplicates.

Where there are more tasks than wanted (``max_tasks``, ``max_live_tasks``), strata keep their
shares; a task and its variants are not kept together, which leaves more different requests. What
``max_tasks`` would drop anyway is mostly not written (``TasksConfig.share_written``).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, aclosing
from typing import Self

from astra.llm.pool import sharded
from astra.records.graph import Chain
from astra.records.score import Rejection
from astra.records.task import Task
from astra.records.tool import Execution, ToolServer
from astra.store.metrics import StageMetrics
from astra.store.shelf import Shelf
from astra.tasking.config import TasksConfig
from astra.tasking.drafts import Draft
from astra.tasking.measures import SetMeasures
from astra.tasking.pipeline import Models, Originals, Outcome, OwnTasks, Pipelines, donated
from astra.tasking.spread import spread, stratum
from astra.tasking.unsolvable import Donor, Donors


async def tasks(
    servers: Iterable[ToolServer],
    chains: Callable[[str], Sequence[Chain]],
    models: Models,
    config: TasksConfig,
    live: int,
    open_items: int,
    metrics: StageMetrics,
    share: float = 1.0,
) -> AsyncGenerator[Task | Rejection, None]:
    """The selected tasks of every server, in the servers' order, and a rejection for each other.

    ``chains`` gives the chains of a server's id. ``live`` is the number of live servers, which
    share ``min_live_tasks`` and ``max_live_tasks``. With ``max_tasks`` the tasks come after
    everything else. ``share``: of the base tasks, those that are written.
    """
    if share < 1:
        metrics.value("share_written", round(share, 4))
    pipelines = Pipelines(models, config, share, metrics, open_items, live)
    seen = Originals(config.near_duplicate) if config.near_duplicate_scope == "set" else None

    async def own(server: ToolServer) -> OwnTasks:
        return await pipelines.own(server, chains(server.id))

    async def whole(part: _Part) -> tuple[ToolServer, list[Outcome]]:
        made, misplaced = part
        return made.server, [*made.outcomes, *await pipelines.irrelevant(made.server, *misplaced)]

    measures = SetMeasures(metrics)
    parts = _handed_on(sharded(servers, own, open_items), Donors(config.unsolvable.donors))
    with _Pool() as pool:
        async with aclosing(sharded(parts, whole, open_items)) as results:
            async for server, outcomes in results:
                metrics.count("servers")
                measures.know(server)
                limit = None
                if server.execution is Execution.LIVE:
                    limit = config.max_live_tasks // live
                for outcome in _selected(outcomes, seen, limit):
                    if isinstance(outcome, Rejection):
                        yield outcome
                    elif config.max_tasks is None:
                        yield measures.add(outcome.task)
                    else:
                        pool.add(outcome)
        for outcome in pool.selected(config.max_tasks or 0):
            yield outcome if isinstance(outcome, Rejection) else measures.add(outcome)
    measures.finish()


_Part = tuple[OwnTasks, tuple[tuple[Donor, ...], int]]
"""A server's own tasks, the questions that may be put to it, and how many are wanted."""


async def _handed_on(
    made: AsyncGenerator[OwnTasks, None], donors: Donors
) -> AsyncGenerator[_Part, None]:
    """Each server with questions of those before it; its own go to those after it."""
    async with aclosing(made):
        async for one in made:
            fitting = donors.fitting(one.server)
            wanted = donors.due(one.irrelevant_wanted, fitting)
            donors.extend(donated(one))
            yield one, (fitting, wanted)


def _selected(
    outcomes: Iterable[Outcome], seen: Originals | None, limit: int | None
) -> Iterator[Outcome]:
    """The scored tasks of one server whose questions are new, at most ``limit`` (None: all)."""
    drafts: list[Draft] = []
    for outcome in outcomes:
        if isinstance(outcome, Rejection):
            yield outcome
        elif seen is not None and not seen.add(outcome.task):
            yield outcome.rejected("near_duplicate")
        else:
            drafts.append(outcome)
    places = ((one.task.id, one.task.server_id, stratum(one.task)) for one in drafts)
    chosen = spread(places, len(drafts) if limit is None else limit)
    for one in drafts:
        yield one if one.task.id in chosen else one.rejected("live_limit")


class _Pool:
    """Tasks put aside until it is known which of all stay."""

    def __init__(self) -> None:
        self._ends = ExitStack()
        self._tasks = self._ends.enter_context(Shelf(Task, lambda task: task.id))
        self._rejections = self._ends.enter_context(Shelf(Rejection, lambda one: one.id))
        """What becomes of each task, in the same order, if it does not stay."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ends.close()

    def add(self, draft: Draft) -> None:
        """Put a task aside."""
        self._tasks.add(draft.task)
        self._rejections.add(draft.rejected("over_max_tasks"))

    def selected(self, limit: int) -> Iterator[Task | Rejection]:
        """Every task that stays, and a rejection for each other, in the order they came."""
        chosen = spread(((task.id, task.server_id, stratum(task)) for task in self._tasks), limit)
        for task, rejection in zip(self._tasks, self._rejections, strict=True):
            yield task if task.id in chosen else rejection
