"""Served time: how long servers and models were at work, without waits for a turn with them.

A limit on it does not depend on how busy the machine or an endpoint is: waits for a place in
flight, for a rate limit or after a Retry-After do not count, and an answer from the cache takes
none, so that a repeated run accepts whatever the first one accepted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType


class ServedLimit:
    """Bounds the served time of what runs within ``async with``. TimeoutError when it is up.

    Work that overlaps counts once. It is entered once.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = self._left_s = limit_s
        self._in_flight = 0
        self._since = 0.0
        self._open = False
        self._timeout = asyncio.timeout(None)
        self._token: Token[ServedLimit | None] | None = None

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._open = True
        self._token = _LIMIT.set(self)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._token is not None
        _LIMIT.reset(self._token)
        self._open = False
        try:
            await self._timeout.__aexit__(kind, error, traceback)
        except TimeoutError as late:
            raise TimeoutError(f"not done within {self._limit_s:g} s of served time") from late

    def begin(self) -> None:
        """A request goes out."""
        self._in_flight += 1
        if self._in_flight == 1:
            self._since = asyncio.get_running_loop().time()
            self._reschedule(self._since + self._left_s)

    def end(self) -> None:
        """A request is answered, or given up."""
        self._in_flight -= 1
        if self._in_flight == 0:
            self._left_s -= asyncio.get_running_loop().time() - self._since
            self._reschedule(None)

    def _reschedule(self, when: float | None) -> None:
        # What is cancelled because the time is up may end after the limit itself.
        if self._open and not self._timeout.expired():
            self._timeout.reschedule(when)


_LIMIT: ContextVar[ServedLimit | None] = ContextVar("served_limit", default=None)


@contextmanager
def served() -> Generator[None]:
    """Count what happens within as served time of the limit around it, if there is one."""
    limit = _LIMIT.get()
    if limit is None:
        yield
        return
    limit.begin()
    try:
        yield
    finally:
        limit.end()


@contextmanager
def uncounted() -> Generator[None]:
    """Count nothing within as served time: it is done for others too."""
    token = _LIMIT.set(None)
    try:
        yield
    finally:
        _LIMIT.reset(token)
