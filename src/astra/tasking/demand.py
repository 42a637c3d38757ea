"""How many asks are open, and when there are few enough to begin with another item."""

from __future__ import annotations

import asyncio
from typing import Any


class Demand:
    """Holds items back while enough asks are open.

    An item brings many asks at once. If every item that may be open started at once, memory would
    hold the prompts of thousands of asks that no place is free for.
    """

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self._open = 0
        self._fewer = asyncio.Event()
        self._gate = asyncio.Lock()
        """Who passes opens its asks before the next one looks."""

    def opened(self, ask: asyncio.Task[Any]) -> None:
        """``ask`` is open from now until it is done, however it ends."""
        self._open += 1
        ask.add_done_callback(self._done)

    def _done(self, _: asyncio.Task[Any]) -> None:
        self._open -= 1
        self._fewer.set()

    async def few(self) -> None:
        """Wait until fewer asks are open than are enough; who waits goes on one after the other."""
        async with self._gate:
            while self._open >= self._enough:
                self._fewer.clear()
                await self._fewer.wait()
