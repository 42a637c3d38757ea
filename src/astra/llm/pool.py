"""Bounded concurrency over many items, their order restored, with no barrier between them.

``sharded`` and ``sharded_flow`` are for the items of a stage, which other processes may work on
(``astra.workers``); ``map_bounded`` and ``flow`` work in this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Generator,
    Iterable,
)
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from typing import Generic, Protocol, TypeVar

AHEAD = 16
"""How many results, per item worked on at once, may wait for one slow item before them."""

Item = TypeVar("Item")
Result = TypeVar("Result")


async def flow(
    items: Iterable[Item] | AsyncIterable[Item],
    work: Callable[[Item], Awaitable[Iterable[Result]]],
    open_items: int,
) -> AsyncGenerator[Result, None]:
    """The outcomes of each item, in the items' order; at most ``open_items`` are worked on.

    It is ``map_bounded`` for work that gives several results per item.
    """
    async with aclosing(_flat(map_bounded(items, work, open_items))) as outcomes:
        async for outcome in outcomes:
            yield outcome


async def sharded_flow(
    items: Iterable[Item] | AsyncIterable[Item],
    work: Callable[[Item], Awaitable[Iterable[Result]]],
    open_items: int,
) -> AsyncGenerator[Result, None]:
    """``flow`` over items that workers may take; see ``sharded``."""
    async with aclosing(_flat(sharded(items, work, open_items))) as outcomes:
        async for outcome in outcomes:
            yield outcome


async def _flat(results: AsyncGenerator[Iterable[Result], None]) -> AsyncGenerator[Result, None]:
    async with aclosing(results):
        async for outcomes in results:
            for outcome in outcomes:
                yield outcome


def sharded(
    items: Iterable[Item] | AsyncIterable[Item],
    work: Callable[[Item], Awaitable[Result]],
    open_items: int,
) -> AsyncGenerator[Result, None]:
    """``map_bounded`` over items that other processes may work on, where the stage has any.

    What comes of an item must follow from the item and from what the stage reads, not from other
    items: the process that works on one may never see the others. ``work`` may add to the stage's
    metrics and must change nothing else outside of itself. Items and results are pickled.
    ``open_items`` is for each process. One stage has at most one chain of such flows, in which the
    results of one are the items of the next.
    """
    where = _placement.get()
    if where is None:
        return map_bounded(items, work, open_items)
    return where.map(items, work, open_items)


class Placement(Protocol):
    """Where the items of a stage are worked on, if not in its own process."""

    idle: bool
    """Whether this process works on no items but those that are sent to it."""

    def map(
        self,
        items: Iterable[Item] | AsyncIterable[Item],
        work: Callable[[Item], Awaitable[Result]],
        open_items: int,
    ) -> AsyncGenerator[Result, None]:
        """See ``sharded``."""
        ...


_placement: ContextVar[Placement | None] = ContextVar("placement", default=None)


def placement() -> Placement | None:
    """Where the items of sharded flows are worked on; None: in this process."""
    return _placement.get()


@contextmanager
def placed(where: Placement) -> Generator[None]:
    """Let ``where`` have the items of sharded flows within the block."""
    token = _placement.set(where)
    try:
        yield
    finally:
        _placement.reset(token)


async def together(*asks: Awaitable[Result]) -> list[Result]:
    """The results of independent asks of one item, made at once, in their order.

    The first exception cancels the others and is raised as it is, not in a group.
    """
    tasks = [asyncio.ensure_future(ask) for ask in asks]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def map_bounded(
    items: Iterable[Item] | AsyncIterable[Item],
    work: Callable[[Item], Awaitable[Result]],
    limit: int,
) -> AsyncGenerator[Result, None]:
    """Apply ``work`` with at most ``limit`` in flight; results come in the items' order.

    Items are drawn lazily and at most ``AHEAD`` times ``limit`` ahead of the results taken, so
    that one slow item (an ask that waits to be repeated) does not idle the rest: memory follows
    ``limit``, not the input. The first exception cancels what is in flight and is raised. When
    the results end, are closed or fail, no task is left and asynchronous ``items`` are closed.
    """
    where = _placement.get()
    if where is not None and where.idle:
        return
    window = _Window[Result](AHEAD * limit)
    source = _Source(items)
    workers = [asyncio.create_task(_drain(source, work, window)) for _ in range(limit)]
    done = asyncio.gather(*workers)
    try:
        async with aclosing(window.in_order(done)) as results:
            async for result in results:
                yield result
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(done, *workers, return_exceptions=True)
        await source.close()


class _Source(Generic[Item]):
    """Items with their places, drawn by several workers, one at a time."""

    def __init__(self, items: Iterable[Item] | AsyncIterable[Item]) -> None:
        self._items = aiter(items) if isinstance(items, AsyncIterable) else _lifted(items)
        # An asynchronous generator refuses a second caller while the first one waits.
        self._drawing = asyncio.Lock()
        self._place = -1

    async def draw(self) -> tuple[int, Item]:
        """The next item. Raises StopAsyncIteration after the last."""
        async with self._drawing:
            item = await anext(self._items)
            self._place += 1
            return self._place, item

    async def close(self) -> None:
        """Close asynchronous items: what a flow before this one has open ends with it."""
        if isinstance(self._items, AsyncGenerator):
            await self._items.aclose()


async def _lifted(items: Iterable[Item]) -> AsyncGenerator[Item, None]:
    for item in items:
        yield item


async def _drain(
    source: _Source[Item], work: Callable[[Item], Awaitable[Result]], window: _Window[Result]
) -> None:
    while True:
        await window.room()
        try:
            place, item = await source.draw()
        except StopAsyncIteration:
            return
        window.put(place, await work(item))


class _Window(Generic[Result]):
    """Results by place that were not taken yet, and how far ahead workers may go."""

    def __init__(self, size: int) -> None:
        self._ready: dict[int, Result] = {}
        self._free = asyncio.Semaphore(size)
        self._news = asyncio.Event()

    async def room(self) -> None:
        await self._free.acquire()

    def put(self, place: int, result: Result) -> None:
        self._ready[place] = result
        self._news.set()

    async def in_order(self, done: asyncio.Future[list[None]]) -> AsyncGenerator[Result, None]:
        """Results until the workers are done. Raises the first worker's exception."""
        done.add_done_callback(lambda _: self._news.set())
        place = 0
        while True:
            while place in self._ready:
                self._free.release()
                yield self._ready.pop(place)
                place += 1
            if done.done():
                done.result()
                if place not in self._ready:
                    return
                continue
            self._news.clear()
            await self._news.wait()
