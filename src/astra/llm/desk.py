"""The desk: what all who ask for one stage have in common: answers, budget, rate limits.

A process has a desk of its own (``OwnDesk``). Where several machines work on a stage they share
one, which the stage's own machine keeps (``astra.workers.service``).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

from astra.llm.budget import Budget, Hold, Tokens
from astra.llm.cache import AnswerCache
from astra.llm.servers import RateLimits
from astra.settings import RuntimeConfig


class Account(Protocol):
    """One ask's account: ``admit`` before each request, ``charge`` after it, ``close`` at last."""

    async def admit(self, model: str, tokens: Tokens) -> None:
        """Wait until the request fits. Raises BudgetReached if it cannot any more."""
        ...

    async def charge(self, model: str, tokens: Tokens) -> float:
        """Book what a request used (also one without answer); returns its money."""
        ...

    def close(self) -> None:
        """Give back what is reserved; idempotent."""
        ...


class Desk(Protocol):
    """Where answers are looked up and committed, and requests are paid and paced."""

    limited: bool
    """Whether the budget caps anything."""

    def claimed(self, key: str) -> AbstractAsyncContextManager[dict[str, Any] | None]:
        """The committed value of a key, or None. Whoever else claims the key at a shared desk
        waits until the block is left, so that equal asks are sent once.
        """
        ...

    async def commit(self, key: str, model: str, value: Mapping[str, Any]) -> None:
        """Commit; the answer survives a kill of any process from now on. Raises CacheError."""
        ...

    def hold(self) -> Account:
        """The account of one ask; close it once the answer is committed or given up."""
        ...

    def limits(self, place: int) -> RateLimits:
        """The rate limits of the endpoint at this place of ``runtime.endpoints``."""
        ...

    def close(self) -> None:
        """Synchronise the disk where answers lie; idempotent."""
        ...


class OwnDesk:
    """The desk of one process: the answer cache's file, and a budget and limits in memory.

    Within one process equal asks wait for each other in the teacher, so a claim is a look-up.
    """

    def __init__(self, runtime: RuntimeConfig, stage: str, root: Path | None = None) -> None:
        """``root``: where the cache lies, if not in the cache root of this process."""
        self.cache = AnswerCache(root)
        self.budget = Budget(runtime.budget, runtime.prices, stage, self.cache)
        self.limited = self.budget.limited
        self._endpoints = runtime.endpoints

    @asynccontextmanager
    async def claimed(self, key: str) -> AsyncGenerator[dict[str, Any] | None]:
        yield self.cache.get(key)

    async def commit(self, key: str, model: str, value: Mapping[str, Any]) -> None:
        self.cache.put(key, model, value)

    def hold(self) -> Hold:
        return self.budget.hold()

    def limits(self, place: int) -> RateLimits:
        return RateLimits(self._endpoints[place])

    def close(self) -> None:
        self.cache.close()


Opening = Callable[[RuntimeConfig, str], Desk]
_shared: ContextVar[Opening | None] = ContextVar("shared_desk", default=None)


@contextmanager
def desk_from(opening: Opening) -> Generator[None]:
    """Let ``opening`` give each stage its desk within the block."""
    token = _shared.set(opening)
    try:
        yield
    finally:
        _shared.reset(token)


def open_desk(runtime: RuntimeConfig, stage: str) -> Desk:
    """The desk of a stage: the shared one, else one of this process."""
    opening = _shared.get()
    return OwnDesk(runtime, stage) if opening is None else opening(runtime, stage)
