"""Order and load of servers worked on at once: whose turn it is, and when the next one is due."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Any, TypeVar

Item = TypeVar("Item")


class Turns:
    """Turns in the order of places 0, 1, 2, ..., whenever their holders arrive."""

    def __init__(self) -> None:
        self._next = 0
        self._left: set[int] = set()
        self._waiting: dict[int, asyncio.Event] = {}

    async def come(self, place: int) -> None:
        """Wait until every earlier place was left."""
        if place > self._next:
            await self._waiting.setdefault(place, asyncio.Event()).wait()

    def leave(self, place: int) -> None:
        """Give up a place, so that the next one comes; idempotent.

        A place that is left before its turn is passed over.
        """
        if place < self._next:
            return
        self._left.add(place)
        while self._next in self._left:
            self._left.remove(self._next)
            self._next += 1
        event = self._waiting.pop(self._next, None)
        if event is not None:
            event.set()


class Demand:
    """Holds items back while enough asks are open.

    An item brings many asks at once. If every item that may be open started at once, memory would
    hold the prompts of thousands of asks that no place is free for.
    """

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self._open = 0
        self._fewer = asyncio.Event()

    def opened(self, ask: asyncio.Task[Any]) -> None:
        """``ask`` is open from now until it is done, however it ends."""
        self._open += 1
        ask.add_done_callback(self._done)

    def _done(self, _: asyncio.Task[Any]) -> None:
        self._open -= 1
        self._fewer.set()

    async def due(self, items: Iterable[Item]) -> AsyncGenerator[Item, None]:
        """Yield each item as soon as fewer asks are open than are enough."""
        for item in items:
            while self._open >= self._enough:
                self._fewer.clear()
                await self._fewer.wait()
            yield item
