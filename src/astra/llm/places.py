"""Places in flight: how many requests may run at once, and who gets the next free place."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Places:
    """Places for ``count`` requests at once; asks tried before go first, then by arrival.

    Items keep many asks open. In an outage each ask would otherwise make its first try before any
    made its last one, and the outage would be known only when all had waited their turn.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._again: deque[asyncio.Future[None]] = deque()
        self._new: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def taken(self, again: bool) -> AsyncGenerator[None]:
        """Hold a place within the block. ``again``: the ask has made a request before."""
        await self._come(self._again if again else self._new)
        try:
            yield
        finally:
            self._leave()

    async def _come(self, queue: deque[asyncio.Future[None]]) -> None:
        if self._free > 0:  # then nobody waits
            self._free -= 1
            return
        place = asyncio.get_running_loop().create_future()
        queue.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._leave()  # it was handed over at the same moment
            raise

    def _leave(self) -> None:
        for queue in (self._again, self._new):
            while queue:
                place = queue.popleft()
                if not place.done():
                    place.set_result(None)
                    return
        self._free += 1
