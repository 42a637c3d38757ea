"""Slow work in threads: batches that gather while one runs, and items drawn one by one.

Both stages ask the sandbox through a ``Batcher``, so that many tools share one round of sessions.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from itertools import islice
from typing import Generic, Self, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batcher(Generic[Item, Result]):
    """Items come one at a time; a batch is what queued while the batch before it ran.

    So there are no timers: the first item is worked on at once, alone. Use in ``async with``;
    leaving it drops what still queues and waits for the batch that runs.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Item]], Sequence[Result]],
        most: int,
        turn: asyncio.Lock | None = None,
    ) -> None:
        """``work`` gives one result per item, in order. It runs in a thread, one batch of at most
        ``most`` items at a time. Batchers that share a ``turn`` never work at the same time.
        """
        self._work = work
        self._most = most
        self._turn = turn or asyncio.Lock()
        self._queue: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for _, waiting in self._queue:
            waiting.cancel()
        self._queue.clear()
        if self._running is not None:
            await asyncio.wait([self._running])

    async def do(self, item: Item) -> Result:
        """The item's result. Raises what ``work`` raised for its batch."""
        waiting: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._queue.append((item, waiting))
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await waiting

    async def _run(self) -> None:
        while self._queue:
            async with self._turn:
                await self._settle(self._next_batch())

    def _next_batch(self) -> list[tuple[Item, asyncio.Future[Result]]]:
        batch: list[tuple[Item, asyncio.Future[Result]]] = []
        while self._queue and len(batch) < self._most:
            item, waiting = self._queue.popleft()
            if not waiting.cancelled():  # else nobody waits for it any more
                batch.append((item, waiting))
        return batch

    def _results(self, items: Sequence[Item]) -> Sequence[Result]:
        try:
            return self._work(items)
        except (StopIteration, CancelledError) as error:
            # No future passes these on as errors: whoever waits would wait for ever.
            raise RuntimeError(f"a batch ended in {error!r}") from error

    async def _settle(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        """Work on a batch and give each of who waits a result, or all of them the error."""
        try:
            items = [item for item, _ in batch]
            results = await asyncio.to_thread(self._results, items) if items else []
            if len(results) != len(batch):
                raise ValueError(f"{len(results)} results for a batch of {len(batch)}")
        except Exception as error:
            for _, waiting in batch:
                if not waiting.cancelled():
                    waiting.set_exception(error)
                    waiting.exception()  # seen: whoever waits may be cancelled before it looks
            return
        for (_, waiting), result in zip(batch, results, strict=True):
            if not waiting.cancelled():
                waiting.set_result(result)


async def drawn_in_thread(items: Iterable[Item]) -> AsyncGenerator[Item, None]:
    """The items, each drawn in a thread, so that the event loop stays free for an interrupt.

    After an interrupt the draw under way is waited for, since what it reads may be closed next.
    """
    source = iter(items)
    while True:
        draw = asyncio.ensure_future(asyncio.to_thread(lambda: list(islice(source, 1))))
        try:
            drawn = await asyncio.shield(draw)
        except asyncio.CancelledError:
            await asyncio.wait([draw])
            raise
        if not drawn:
            return
        yield drawn[0]
