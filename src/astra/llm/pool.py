"""Bounded concurrency over many asks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

AHEAD = 4

Item = TypeVar("Item")
Result = TypeVar("Result")


async def map_bounded(
    items: Iterable[Item], work: Callable[[Item], Awaitable[Result]], limit: int
) -> AsyncIterator[Result]:
    """Apply ``work`` with at most ``limit`` in flight; results come in the items' order.

    Items are drawn lazily, a few times ``limit`` ahead so that one slow item does not idle the
    rest: memory follows ``limit``, not the input. The first exception cancels what is in flight
    and is raised.
    """
    source = iter(items)
    pending: deque[asyncio.Task[Result]] = deque()
    slots = asyncio.Semaphore(limit)

    async def run(item: Item) -> Result:
        async with slots:
            return await work(item)

    def refill() -> None:
        while len(pending) < AHEAD * limit:
            try:
                item = next(source)
            except StopIteration:
                return
            pending.append(asyncio.create_task(run(item)))

    try:
        refill()
        while pending:
            result = await pending[0]
            pending.popleft()
            refill()
            yield result
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
