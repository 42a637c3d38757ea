"""The owner's side: hands items to workers, and does again elsewhere what a lost worker had open.

A worker is an actor on some node of the Ray cluster that RAY_ADDRESS names, or of one on this
machine alone. Results come in the items' order and metrics are sums, so that tables and metrics
have the same bytes however many workers there are and whichever are lost.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel

from astra.llm.build import Teachers
from astra.llm.desk import Desk, desk_from
from astra.llm.pool import map_bounded, placed
from astra.llm.usage import Usage
from astra.settings import RuntimeConfig
from astra.stage import Reporter
from astra.store.metrics import StageMetrics
from astra.store.paths import cache_root
from astra.workers.inputs import WorkersError, require_same, stage_inputs
from astra.workers.ray import at_node, import_ray
from astra.workers.service import DeskService, SharedDesk
from astra.workers.worker import END_S, START_S, Done, Order, StageWorker, flow_name

log = logging.getLogger("astra")
Item = TypeVar("Item")
Result = TypeVar("Result")

ITEM_TRIES = 3
"""How many workers may be lost while they work on an item, before the stage stops."""
REPLACED = 3
"""How many lost workers are replaced, for each that is wanted."""
FOLDER = "ASTRA_WORKSPACE"
"""The variable, set where a machine joins the cluster, that says where its checkout lies; without
it the owner's folder is taken."""
TICK_S = 5.0
NAMED = 10
"""How many items an error names."""
AT_ONCE = 10_000
"""Calls that an actor may have open: its items, and what all of their asks wait for."""


@dataclass(eq=False)
class _Worker:
    """A worker as its owner knows it."""

    name: str
    actor: Any
    open: Counter[str] = field(default_factory=Counter[str])
    """The items it has, by name."""
    usages: list[Usage] = field(default_factory=list[Usage])
    """Its counters as it told them last."""


class Crew:
    """All workers of one stage (``llm.pool.Placement``). Use it in ``with``.

    Ray and the service start with the first role or item that needs them.
    """

    idle = False

    def __init__(
        self,
        stage: str,
        config: BaseModel,
        runtime: RuntimeConfig,
        metrics: StageMetrics,
        teachers: Teachers,
        reporter: Reporter,
    ) -> None:
        self._stage = stage
        self._config = config
        self._runtime = runtime
        self._metrics = metrics
        self._teachers = teachers
        self._reporter = reporter
        self._ray: Any = None
        self._owned = False
        """Whether this crew joined the cluster, and leaves it."""
        self._service: Any = None
        self._workers: list[_Worker] = []
        self._names = (f"{stage}-{number}" for number in itertools.count(1))
        self._starting = asyncio.Lock()
        self._changed = asyncio.Event()
        self._replacing = 0
        self._lost = 0
        self._tries: Counter[str] = Counter()
        """How many workers were lost with each item open."""
        self._ends = ExitStack()

    def __enter__(self) -> Self:
        self._ends.enter_context(placed(self))
        self._ends.enter_context(desk_from(self._desk))
        self._reporter.notes.append(self._note)
        self._ends.callback(self._reporter.notes.remove, self._note)
        self._ends.callback(self._close)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ends.close()

    async def map(
        self,
        items: Iterable[Item] | AsyncIterable[Item],
        work: Callable[[Item], Awaitable[Result]],
        open_items: int,
    ) -> AsyncGenerator[Result, None]:
        """What workers make of the items, in the items' order."""
        async with self._starting:
            if not self._workers:
                await asyncio.to_thread(self._connect)
                await self._hire(self._runtime.stage_workers)
        name = flow_name(work)

        async def done(item: Item) -> Result:
            return await self._done(name, item, open_items)

        ticking = asyncio.create_task(self._tick())
        try:
            async with aclosing(
                map_bounded(items, done, open_items * self._runtime.stage_workers)
            ) as results:
                async for result in results:
                    yield result
        finally:
            ticking.cancel()

    async def _done(self, flow: str, item: Any, open_items: int) -> Any:
        """The result of one item, by as many workers as it takes."""
        label = item_name(item)
        while True:
            worker = await self._free(open_items)
            worker.open[label] += 1
            try:
                done: Done = await worker.actor.do.remote(flow, item)
            except self._ray.exceptions.RayTaskError:
                raise  # a fault of the worker's own code
            except self._ray.exceptions.RayError as error:
                await self._give_up(worker, error)
                continue
            finally:
                worker.open -= Counter([label])
                self._news()
            return self._taken(worker, done)

    def _taken(self, worker: _Worker, done: Done) -> Any:
        """Book what an item brought beside its result. Raises what its work raised."""
        for own, more, less in zip(
            self._teachers.usages,
            done.usages,
            worker.usages or [Usage("", "") for _ in done.usages],
            strict=False,
        ):
            own.add(more, less)
        worker.usages = done.usages
        for method, values in done.counted:
            getattr(self._metrics, method)(*values)
        for level, text in done.said:
            log.log(level, "%s: %s", worker.name, text)
        if done.problem is not None:
            raise done.problem
        return done.result

    async def _free(self, open_items: int) -> _Worker:
        """The worker with the least to do that has room. Raises WorkersError if none is left."""
        while True:
            if not self._workers and not self._replacing:
                raise WorkersError(
                    f"all workers of stage {self._stage} are lost, {self._lost} in all; see "
                    "`ray status` and the logs of the machines, then run the same command again: "
                    "committed answers are kept"
                )
            worker = min(self._workers, key=lambda one: one.open.total(), default=None)
            if worker is not None and worker.open.total() < open_items:
                return worker
            self._changed.clear()
            await self._changed.wait()

    async def _give_up(self, worker: _Worker, error: Exception) -> None:
        """Count a worker as lost, once. Raises WorkersError for items that lose too many."""
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        self._lost += 1
        self._tries.update(worker.open)
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        log.warning(
            "worker %s is lost (%s); its %d open items go to others",
            worker.name, reason, worker.open.total(),
        )  # fmt: skip
        self._kill(worker.actor)
        # Nothing is waited for before it is known how to go on: the other items of the worker
        # come here as well, and must find that it is replaced, or this error before their own.
        passing_on = self._service.lose.remote(worker.name) if self._service else None
        if doomed := sorted(name for name in worker.open if self._tries[name] >= ITEM_TRIES):
            raise WorkersError(
                f"{ITEM_TRIES} workers of stage {self._stage} were lost while they worked on "
                f"{', '.join(doomed[:NAMED])} ({len(doomed)} items), the last: {reason}. See the "
                "logs of the machines (memory?), or run with runtime.stage_workers=0; committed "
                "answers are kept"
            )
        replaced = self._lost <= REPLACED * self._runtime.stage_workers
        self._replacing += replaced
        try:
            if passing_on is not None:
                await passing_on
            if replaced:
                await self._hire(1)
        finally:
            self._replacing -= replaced
            self._news()

    async def _hire(self, count: int) -> None:
        """Start workers, spread over the nodes that are alive. Raises WorkersError."""
        nodes = sorted(node["NodeID"] for node in self._ray.nodes() if node["Alive"])
        remote = self._ray.remote(StageWorker)
        hired: list[tuple[_Worker, str]] = []
        for _ in range(count):
            name = next(self._names)
            node = nodes[(int(name.rpartition("-")[2]) - 1) % len(nodes)]
            folder = await self._folder(node)
            order = Order(self._stage, name, folder, self._runtime, self._service)
            actor = remote.options(
                num_cpus=0,
                max_restarts=0,
                max_concurrency=AT_ONCE,
                scheduling_strategy=at_node(node, soft=True),
            ).remote(order)
            hired.append((_Worker(name, actor), f"{folder} on node {node[:8]}"))
        await asyncio.gather(*(self._started(worker, where) for worker, where in hired))
        self._workers += [worker for worker, _ in hired]

    async def _started(self, worker: _Worker, where: str) -> None:
        """Have a worker start, if it has the stage's inputs as they are here."""
        block = self._config.model_dump_json()
        try:
            async with asyncio.timeout(START_S):
                found = await worker.actor.inputs.remote(block)
                if isinstance(found, Exception):
                    raise found
                own = await asyncio.to_thread(stage_inputs, self._stage, block)
                require_same(own, found, where)
                await worker.actor.start.remote()
        except (self._ray.exceptions.RayError, TimeoutError) as error:
            self._kill(worker.actor)
            raise WorkersError(
                f"a worker did not start in {where} ({type(error).__name__}: {error}); is the "
                f"checkout there ({FOLDER} names it), with astra and ray installed?"
            ) from error

    async def _folder(self, node: str) -> str:
        """Where the checkout lies on a node."""
        asked = self._ray.remote(_workspace).options(
            num_cpus=0, scheduling_strategy=at_node(node, soft=True)
        )
        return await asked.remote() or str(Path.cwd())

    def _desk(self, runtime: RuntimeConfig, stage: str) -> Desk:
        """The desk of the owner's own roles."""
        self._connect()
        if self._service is None:
            own = self._ray.get_runtime_context().get_node_id()
            options = {
                "num_cpus": 0,
                "max_concurrency": AT_ONCE,
                "scheduling_strategy": at_node(own, soft=False),
            }
            actor = self._ray.remote(DeskService).options(**options)
            self._service = actor.remote(runtime, stage, str(cache_root().resolve()))
        return SharedDesk(self._service, "owner", runtime)

    def _connect(self) -> None:
        """Join the cluster, or start one on this machine."""
        if self._ray is not None:
            return
        self._ray = import_ray()
        if not self._ray.is_initialized():
            self._ray.init(log_to_driver=False, include_dashboard=False)
            self._owned = True

    def _kill(self, actor: Any) -> None:
        with suppress(self._ray.exceptions.RayError, ValueError):
            self._ray.kill(actor)

    def _close(self) -> None:
        """End all workers, then the service; what they have open gets a moment."""
        if self._ray is None:
            return
        if self._workers:
            ending = [worker.actor.finish.remote() for worker in self._workers]
            self._ray.wait(ending, num_returns=len(ending), timeout=END_S)
        for worker in self._workers:
            self._kill(worker.actor)
        if self._service is not None:
            with suppress(self._ray.exceptions.RayError):
                self._ray.get(self._service.close.remote(), timeout=END_S)
            self._kill(self._service)
        if self._owned:
            self._ray.shutdown()

    def _note(self) -> str:
        """How many workers there are, for progress lines."""
        if not self._workers and not self._lost:
            return ""
        lost = f" ({self._lost} lost)" if self._lost else ""
        return f"{len(self._workers)} workers{lost}"

    def _news(self) -> None:
        self._changed.set()

    async def _tick(self) -> None:
        """Progress while no item comes back."""
        while True:
            await asyncio.sleep(TICK_S)
            self._reporter.tick()


def item_name(item: Any) -> str:
    """How an error names an item: by the ids in it, or how it begins."""
    within = item if isinstance(item, tuple) else getattr(item, "__dict__", {}).values()
    ids = (getattr(part, "id", None) for part in (item, *within))
    return next((str(one) for one in ids if isinstance(one, str | int)), repr(item)[:80])


def _workspace() -> str:
    """Runs on a worker's machine."""
    return os.environ.get(FOLDER, "")
