"""Bounded concurrency over many asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


async def map_bounded(
    items: Iterable[Item], work: Callable[[Item], Awaitable[Result]], limit: int
) -> AsyncIterator[Result]:
    """Apply ``work`` with at most ``limit`` in flight; results come in the items' order.

    Items are drawn lazily, so memory follows ``limit``, not the input. The first exception
    cancels what is in flight and is raised.
    """
    source = iter(items)
    pending: list[asyncio.Task[Result]] = []

    async def run(item: Item) -> Result:
        return await work(item)

    def refill() -> None:
        while len(pending) < limit:
            try:
                item = next(source)
            except StopIteration:
                return
            pending.append(asyncio.create_task(run(item)))

    try:
        refill()
        while pending:
            result = await pending[0]
            pending.pop(0)
            refill()
            yield result
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
