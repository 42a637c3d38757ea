"""Bounded concurrency over many asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Generic, TypeVar

AHEAD = 16
"""Results that may wait for one slow item before them, times the bound."""

Item = TypeVar("Item")
Result = TypeVar("Result")


async def map_bounded(
    items: Iterable[Item], work: Callable[[Item], Awaitable[Result]], limit: int
) -> AsyncIterator[Result]:
    """Apply ``work`` with at most ``limit`` in flight; results come in the items' order.

    Items are drawn lazily and at most ``AHEAD`` times ``limit`` ahead of the results taken, so
    that one slow item (an ask that waits to be repeated) does not idle the rest: memory follows
    ``limit``, not the input. The first exception cancels what is in flight and is raised.
    """
    window = _Window[Result](AHEAD * limit)
    source = enumerate(items)
    workers = [asyncio.create_task(_drain(source, work, window)) for _ in range(limit)]
    done = asyncio.gather(*workers)
    try:
        async for result in window.in_order(done):
            yield result
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(done, *workers, return_exceptions=True)


async def _drain(
    source: Iterator[tuple[int, Item]],
    work: Callable[[Item], Awaitable[Result]],
    window: _Window[Result],
) -> None:
    while True:
        await window.room()
        try:
            place, item = next(source)
        except StopIteration:
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

    async def in_order(self, done: asyncio.Future[list[None]]) -> AsyncIterator[Result]:
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
