"""A worker: it runs a stage's own ``main`` as far as its items, and then works on those it is sent.

``main`` builds there what work needs, as it does for the owner: teachers, shelves, a sandbox. When
it comes to a sharded flow (``llm.pool.sharded``), the flow's work is noted, and the worker waits
for items instead of reading them. Nothing of ``main`` that comes after the flow ever runs there,
and no table is written.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import runpy
import threading
import traceback
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from contextlib import aclosing
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from astra.errors import AstraError
from astra.llm.desk import desk_from
from astra.llm.pool import placed
from astra.llm.usage import Usage
from astra.settings import RuntimeConfig
from astra.store.metrics import StageMetrics
from astra.workers.inputs import WorkersError, stage_inputs
from astra.workers.service import SharedDesk

START_S = 300.0
"""How long a worker may take, in seconds, until its stage has come to its items."""
END_S = 10.0
"""How long a worker may take, in seconds, to close what it has open."""
SAID_MOST = 100
"""How many warnings of a worker wait at most to be told."""

Work = Callable[[Any], Awaitable[Any]]
MetricsCall = tuple[str, tuple[Any, ...]]
"""A method of ``StageMetrics`` and what it was called with."""

_counting: ContextVar[list[MetricsCall] | None] = ContextVar("metrics_of_item", default=None)


class Relieved(Exception):
    """The owner has no more items: the worker's stage ends here."""


@dataclass(frozen=True)
class Order:
    """What a worker is to be."""

    stage: str
    worker: str
    """Its name towards the service."""
    folder: str
    """The checkout on its machine."""
    runtime: RuntimeConfig
    """How to run, as the owner has it."""
    service: Any
    """The shared desk's actor; None where no role is answered by an endpoint."""


@dataclass(frozen=True)
class Done:
    """What came of one item."""

    result: Any
    problem: Exception | None
    """What its work raised, in place of a result."""
    counted: list[MetricsCall]
    usages: list[Usage] = field(default_factory=list[Usage])
    """The worker's counters so far, all items together."""
    said: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Level and text of the warnings since the last item."""


class ItemMetrics(StageMetrics):
    """Metrics whose counts belong to the item that is worked on; the owner adds them up.

    What is counted beside the items is left out: the owner counts that itself.
    """

    def count(self, name: str, by: int = 1) -> None:
        self._note("count", name, by)

    def distribution(self, name: str, items: Iterable[object]) -> None:
        self._note("distribution", name, [str(item) for item in items])

    def _note(self, method: str, *values: Any) -> None:
        counted = _counting.get()
        if counted is not None:
            counted.append((method, values))

    def value(self, name: str, value: Any) -> None:
        """Nothing beside the items. Raises ValueError within one: which of all would stay?"""
        if _counting.get() is not None:
            raise ValueError(f"metrics of {self.stage}: {name!r} is a value, set for one item")


class Shift:
    """What a worker's stage does in place of its own items (``llm.pool.Placement``)."""

    idle = True

    def __init__(self, order: Order) -> None:
        self.order = order
        self.usages: list[Usage] = []
        """The counters of the stage's roles."""
        self._flows: dict[str, Work] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None

    def serve(self, outcomes: AsyncGenerator[Any, None], usages: list[Usage]) -> None:
        """Work on items until there are no more. Raises Relieved then."""
        self.usages = usages
        with asyncio.Runner() as runner:
            runner.run(self._serve(outcomes))

    async def _serve(self, outcomes: AsyncGenerator[Any, None]) -> None:
        self._over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        await _exhausted(outcomes)

    async def map(
        self, items: Iterable[Any] | AsyncIterable[Any], work: Work, open_items: int
    ) -> AsyncGenerator[Any, None]:
        """Note the work, and that of flows before this one; yields nothing."""
        assert self._over is not None
        self._flows[flow_name(work)] = work
        before = None
        if isinstance(items, AsyncGenerator):
            before = asyncio.create_task(_exhausted(items))
        try:
            await self._over.wait()
            raise Relieved
            yield  # what makes this a generator
        finally:
            if before is not None:
                before.cancel()
                await asyncio.gather(before, return_exceptions=True)

    def work(self, flow: str) -> Work | None:
        """The work of a flow, once the stage has come to it."""
        return self._flows.get(flow)

    async def do(self, work: Work, item: Any) -> Done:
        """Work on an item, in the stage's own loop."""
        assert self._loop is not None
        done = asyncio.run_coroutine_threadsafe(self._done(work, item), self._loop)
        return await asyncio.wrap_future(done)

    async def _done(self, work: Work, item: Any) -> Done:
        counted: list[MetricsCall] = []
        _counting.set(counted)
        result, problem = None, None
        try:
            result = await work(item)
        except Exception as error:
            problem = _portable(error)
        return Done(result, problem, counted, deepcopy(self.usages))

    def finish(self) -> None:
        """Let the stage end; what is open ends with it."""
        if self._loop is not None and self._over is not None:
            self._loop.call_soon_threadsafe(self._over.set)


class StageWorker:
    """The actor. Its methods run in one event loop, the stage in a thread beside it."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._shift = Shift(order)
        self._said = _Warnings()
        self._problem: BaseException | None = None
        os.chdir(order.folder)
        logging.getLogger("astra").addHandler(self._said)
        self._thread = threading.Thread(target=self._run, name=order.stage, daemon=True)

    async def inputs(self, block: str) -> dict[str, str] | Exception:
        """What this machine has of what the stage reads; see ``stage_inputs``."""
        try:
            return await asyncio.to_thread(stage_inputs, self._order.stage, block)
        except AstraError as error:
            return error

    async def start(self) -> None:
        """Start the stage."""
        self._thread.start()

    async def process(self) -> int:
        """The process id, for who wants to end it."""
        return os.getpid()

    async def do(self, flow: str, item: Any) -> Done:
        """Work on an item of a flow."""
        waited = 0.0
        while (work := self._shift.work(flow)) is None:
            if not self._thread.is_alive() or waited > START_S:
                return Done(None, self._why_not(flow), [])
            await asyncio.sleep(0.05)
            waited += 0.05
        done = await self._shift.do(work, item)
        done.said.extend(self._said.taken())
        return done

    async def finish(self) -> None:
        """Close what the stage has open."""
        self._shift.finish()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, END_S)

    def _why_not(self, flow: str) -> Exception:
        if self._problem is not None:
            return _portable(self._problem)
        return WorkersError(
            f"stage {self._order.stage} did not come to its items ({flow}) on a worker within "
            f"{START_S:g} s; flows of which one follows another's end cannot be sharded"
        )

    def _run(self) -> None:
        order = self._order

        def desk(runtime: RuntimeConfig, stage: str) -> SharedDesk:
            return SharedDesk(order.service, order.worker, runtime)

        try:
            with placed(self._shift), desk_from(desk):
                runpy.run_path(stage_file(order.stage), run_name="astra_worker")["main"]()
        except Relieved:
            pass
        except BaseException as error:
            self._problem = error


def stage_file(stage: str) -> str:
    """The file whose ``main`` runs a stage, in the working directory."""
    return str(Path("stages") / f"{stage}.py")


def flow_name(work: Work) -> str:
    """How owner and workers name a flow: after the function that works on its items."""
    return getattr(work, "__qualname__", type(work).__qualname__)


class _Warnings(logging.Handler):
    """Keeps warnings until the owner is told them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._waiting: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._waiting) < SAID_MOST:
            self._waiting.append((record.levelno, record.getMessage()))

    def taken(self) -> list[tuple[int, str]]:
        """All that wait."""
        taken, self._waiting = self._waiting, []
        return taken


async def _exhausted(outcomes: AsyncGenerator[Any, None]) -> None:
    """Let a stage's flow run; whatever it yields is the owner's to yield."""
    async with aclosing(outcomes):
        async for _ in outcomes:
            pass


def _portable(error: BaseException) -> Exception:
    """``error`` as it can be sent: itself, or its text where it cannot be pickled."""
    if isinstance(error, Exception):
        try:
            pickle.loads(pickle.dumps(error))
            return error
        except Exception:
            pass
    text = "".join(traceback.format_exception(error))
    return (AstraError if isinstance(error, AstraError) else RuntimeError)(text)
