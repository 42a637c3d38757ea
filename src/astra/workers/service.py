"""The shared desk: one answer cache, budget and set of rate limits for all workers of a stage.

``DeskService`` is an actor on the owner's machine and the only one of them that opens the answer
cache. It commits an answer before it says so, and a worker returns an answer only after that: one
that was committed survives whatever is killed next. ``SharedDesk`` is how a worker, and the owner,
reach it. What an asker holds (a claim on a key, a part of the budget) goes by a ticket. When a
worker is lost its tickets are torn up: claims pass on, and what its requests in flight may have
cost is booked, since they may have been answered.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from astra.errors import StageStop
from astra.llm.budget import Hold, Tokens, is_limited
from astra.llm.desk import OwnDesk
from astra.llm.servers import RateLimits
from astra.settings import RuntimeConfig
from astra.workers.inputs import WorkersError
from astra.workers.ray import import_ray

Answer = TypeVar("Answer")


class DeskService:
    """The actor. Its methods run in one event loop; a StageStop is returned, not raised.

    The first argument of each is the worker that calls; one that was given up as lost is refused.
    """

    def __init__(self, runtime: RuntimeConfig, stage: str, root: str) -> None:
        self._desk = OwnDesk(runtime, stage, Path(root))
        self._limits = [self._desk.limits(place) for place in range(len(runtime.endpoints))]
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._claims: dict[str, asyncio.Lock] = {}
        self._holds: dict[str, Hold] = {}
        self._waiting: dict[str, asyncio.Task[Any]] = {}
        self._ended: set[str] = set()
        """Tickets that ended before their first call came; calls may overtake each other."""
        self._tickets: defaultdict[str, set[str]] = defaultdict(set)
        self._lost: set[str] = set()

    async def claim(self, worker: str, ticket: str, key: str) -> dict[str, Any] | StageStop | None:
        """The committed value of a key, once nobody else holds it."""

        async def taken() -> dict[str, Any] | None:
            lock = self._locks.setdefault(key, asyncio.Lock())
            await lock.acquire()
            self._claims[ticket] = lock
            return self._desk.cache.get(key)

        return await self._waited(worker, ticket, taken)

    async def commit(
        self, worker: str, key: str, model: str, value: dict[str, Any]
    ) -> StageStop | None:
        """Commit an answer."""
        if refused := self._refused(worker):
            return refused
        try:
            await self._desk.commit(key, model, value)
        except StageStop as error:
            return error
        return None

    async def admit(self, worker: str, ticket: str, model: str, tokens: Tokens) -> StageStop | None:
        """Wait until a request fits the budget."""

        async def admitted() -> None:
            await self._holds.setdefault(ticket, self._desk.hold()).admit(model, tokens)

        return await self._waited(worker, ticket, admitted)

    async def charge(
        self, worker: str, ticket: str, model: str, tokens: Tokens
    ) -> float | StageStop:
        """Book what a request used. What a lost worker had in flight was booked already."""
        if refused := self._refused(worker):
            return refused
        self._tickets[worker].add(ticket)
        try:
            return await self._holds.setdefault(ticket, self._desk.hold()).charge(model, tokens)
        except StageStop as error:
            return error

    async def reserve(self, worker: str, place: int, tokens: int) -> float | StageStop:
        """The seconds to wait before a request of so many tokens is sent to an endpoint."""
        return self._refused(worker) or await self._limits[place].reserve(tokens)

    async def correct(self, worker: str, place: int, tokens: int) -> StageStop | None:
        """See ``RateLimits.correct``."""
        if not (refused := self._refused(worker)):
            await self._limits[place].correct(tokens)
        return refused

    async def end(self, worker: str, ticket: str) -> None:
        """Let go of whatever goes by a ticket, and of what still waits for it."""
        if waiting := self._waiting.pop(ticket, None):
            waiting.cancel()
        if ticket not in self._tickets[worker]:
            self._ended.add(ticket)
            return
        self._tickets[worker].discard(ticket)
        self._release(ticket)
        if hold := self._holds.pop(ticket, None):
            hold.close()

    async def lose(self, worker: str) -> None:
        """Give a worker up: nothing of what it holds stays held, and it is not heard again."""
        self._lost.add(worker)
        for ticket in self._tickets.pop(worker, set()):
            if waiting := self._waiting.pop(ticket, None):
                waiting.cancel()
            self._release(ticket)
            if hold := self._holds.pop(ticket, None):
                hold.forfeit()

    async def close(self) -> None:
        """Synchronise the disk, and let go of the file."""
        self._desk.close()

    async def _waited(
        self, worker: str, ticket: str, work: Callable[[], Awaitable[Answer]]
    ) -> Answer | StageStop | None:
        """What ``work`` gives, unless the ticket ends first."""
        if refused := self._refused(worker):
            return refused
        if ticket in self._ended:
            self._ended.discard(ticket)
            return None
        self._tickets[worker].add(ticket)
        task = self._waiting[ticket] = asyncio.ensure_future(work())
        try:
            return await task
        except asyncio.CancelledError:
            return None  # who asked does not listen any more
        except StageStop as error:
            return error
        finally:
            self._waiting.pop(ticket, None)

    def _refused(self, worker: str) -> WorkersError | None:
        if worker in self._lost:
            return WorkersError(f"worker {worker} was given up as lost; its items went to others")
        return None

    def _release(self, ticket: str) -> None:
        if lock := self._claims.pop(ticket, None):
            lock.release()


class SharedDesk:
    """A desk (``llm.desk.Desk``) that is a client of the service."""

    def __init__(self, service: Any, worker: str, runtime: RuntimeConfig) -> None:
        self.limited = is_limited(runtime.budget)
        self._service = service
        self._worker = worker
        self._endpoints = runtime.endpoints
        self._tickets = (f"{worker}-{number}" for number in itertools.count())

    @asynccontextmanager
    async def claimed(self, key: str) -> AsyncGenerator[dict[str, Any] | None]:
        ticket = next(self._tickets)
        try:
            yield await self.call("claim", ticket, key)
        finally:
            self.end(ticket)

    async def commit(self, key: str, model: str, value: Mapping[str, Any]) -> None:
        await self.call("commit", key, model, dict(value))

    def hold(self) -> SharedHold:
        return SharedHold(self, next(self._tickets))

    def limits(self, place: int) -> RateLimits:
        endpoint = self._endpoints[place]
        limits = RateLimits(endpoint)
        return SharedRateLimits(self, place, endpoint) if limits.limited else limits

    def close(self) -> None:
        """Nothing: the service is its owner's to close."""

    async def call(self, method: str, *values: Any) -> Any:
        """What the service answers. Raises the StageStop that it returns, and WorkersError where
        it is gone.
        """
        try:
            answer = await getattr(self._service, method).remote(self._worker, *values)
        except import_ray().exceptions.RayError as error:
            raise WorkersError(
                f"the answer cache's service failed ({type(error).__name__}: "
                f"{str(error).strip().splitlines()[-1]}); run the same command again: committed "
                "answers are kept"
            ) from error
        if isinstance(answer, StageStop):
            raise answer
        return answer

    def end(self, ticket: str) -> None:
        """Have a ticket ended; does not wait for it."""
        self._service.end.remote(self._worker, ticket)


class SharedHold:
    """The account of one ask (``llm.desk.Account``) at the service."""

    def __init__(self, desk: SharedDesk, ticket: str) -> None:
        self._desk = desk
        self._ticket = ticket
        self._known = False

    async def admit(self, model: str, tokens: Tokens) -> None:
        if self._desk.limited:
            self._known = True
            await self._desk.call("admit", self._ticket, model, tokens)

    async def charge(self, model: str, tokens: Tokens) -> float:
        self._known = True
        return await self._desk.call("charge", self._ticket, model, tokens)

    def close(self) -> None:
        if self._known:
            self._known = False
            self._desk.end(self._ticket)


class SharedRateLimits(RateLimits):
    """The rate limits of an endpoint as the service keeps them."""

    def __init__(self, desk: SharedDesk, place: int, endpoint: Any) -> None:
        super().__init__(endpoint)
        self._desk = desk
        self._place = place
        self._told = 0.0

    @property
    def free_at(self) -> float:
        """When the last request that was reserved here may start; others may have more."""
        return self._told

    async def reserve(self, tokens: int) -> float:
        wait: float = await self._desk.call("reserve", self._place, tokens)
        self._told = time.monotonic() + wait
        return wait

    async def correct(self, tokens: int) -> None:
        await self._desk.call("correct", self._place, tokens)
