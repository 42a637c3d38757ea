"""Endpoints as a process knows them: load, health, limits, and what they have refused."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2
from openai import DefaultAioHttpClient

from astra.errors import StageStop
from astra.settings import Endpoint

UNHEALTHY_FAULTS = 3
"""How many faults in a row let an endpoint rest; each further one doubles the rest."""
REST_S = 0.5
REST_MAX_S = 30.0
IGNORED_SCHEMAS = 2
"""How many replies without JSON show that an endpoint does not enforce the schema it took."""


class EndpointError(StageStop):
    """No endpoint can serve this stage: missing, misconfigured or down."""


class Pace:
    """A rate limit of ``per_minute`` units, spread evenly: each unit moves the next start."""

    def __init__(self, per_minute: int | None) -> None:
        self._per_second = per_minute / 60 if per_minute else None
        self.free_at = 0.0

    def reserve(self, units: float, now: float) -> float:
        """Take ``units``; returns the seconds to wait before using them."""
        if self._per_second is None:
            return 0.0
        start = max(now, self.free_at)
        self.free_at = start + units / self._per_second
        return start - now

    def correct(self, units: float) -> None:
        """Add what was used beyond the reservation, or give back what was not."""
        if self._per_second is not None:
            self.free_at += units / self._per_second


class RateLimits:
    """The rate limits of one endpoint, for all who ask at one desk."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.limited = bool(endpoint.requests_per_minute or endpoint.tokens_per_minute)
        self._requests = Pace(endpoint.requests_per_minute)
        self._tokens = Pace(endpoint.tokens_per_minute)

    @property
    def free_at(self) -> float:
        """When the next request could start, by ``time.monotonic``."""
        return max(self._requests.free_at, self._tokens.free_at)

    async def reserve(self, tokens: int) -> float:
        """Take a request of so many tokens; returns the seconds to wait before sending it."""
        now = time.monotonic()
        return max(self._requests.reserve(1, now), self._tokens.reserve(tokens, now))

    async def correct(self, tokens: int) -> None:
        """Add the tokens used beyond the reservation, or give back those that were not."""
        self._tokens.correct(tokens)


@dataclass
class Server:
    """An endpoint with what this process has learnt of it."""

    endpoint: Endpoint
    limits: RateLimits
    key: str
    timeout_s: float
    client: httpx2.AsyncClient | None = None
    in_flight: int = 0
    rests_until: float = 0.0
    faults_in_a_row: int = 0
    refuses: dict[str, str] = field(default_factory=dict[str, str])
    """The models that it will not serve in this run, and why."""
    structured: bool | None = None
    """Whether it takes ``response_format``; None until tried."""
    ignored_schemas: int = 0
    refused_schemas: set[str] = field(default_factory=set[str])
    """The schemas that it refused although it takes others."""
    answered: Counter[str] = field(default_factory=Counter[str])
    """How many completions it gave, by model."""

    def __post_init__(self) -> None:
        self._chat = httpx2.URL(self.url.rstrip("/") + "/chat/completions")
        self._headers = httpx2.Headers(
            {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        )
        self._extensions = {"timeout": httpx2.Timeout(self.timeout_s).as_dict()}

    @property
    def url(self) -> str:
        return self.endpoint.base_url

    def open(self) -> None:
        """A client for the running event loop: the openai library's, on its aiohttp transport.

        Requests do not pass through ``AsyncOpenAI``: it takes more time for one than aiohttp,
        rendering, parsing and the cache together (docs/performance.md).
        """
        self.client = DefaultAioHttpClient(timeout=self.timeout_s, headers=self._headers)
        self.in_flight = 0

    async def close(self) -> None:
        if self.client is not None:
            await self.client.aclose()
            self.client = None

    async def chat(self, body: Mapping[str, Any]) -> httpx2.Response:
        """The response, read to its end within the endpoint's time. Raises TimeoutError and
        httpx2.HTTPError.
        """
        assert self.client is not None
        content = json.dumps(body, ensure_ascii=False).encode()
        # Made here, since the client would merge headers and parse the address for each request.
        request = httpx2.Request(
            "POST", self._chat, headers=self._headers, content=content, extensions=self._extensions
        )
        async with asyncio.timeout(self.timeout_s):
            return await self.client.send(request)

    def serves(self, model: str) -> bool:
        return not self.endpoint.models or model in self.endpoint.models

    def starts_at(self) -> float:
        """When a request sent here would start."""
        return max(self.rests_until, self.limits.free_at)

    def rest(self, seconds: float) -> None:
        """Send nothing there for some seconds, as the server asked."""
        self.rests_until = max(self.rests_until, time.monotonic() + seconds)

    def failed(self, sent_at: float, jitter: random.Random) -> None:
        """Count a fault that more requests would probably meet.

        Faults of requests that were sent before the last rest began say nothing new.
        """
        now = time.monotonic()
        if now < self.rests_until or sent_at < self.rests_until:
            return
        self.faults_in_a_row += 1
        beyond = self.faults_in_a_row - UNHEALTHY_FAULTS
        if beyond >= 0:
            self.rest(min(REST_S * 2.0**beyond, REST_MAX_S) * jitter.uniform(0.5, 1.0))

    def succeeded(self, model: str) -> None:
        """Count a completion; the endpoint is healthy."""
        self.faults_in_a_row = 0
        self.answered[model] += 1

    def ignored_schema(self) -> None:
        """Count a whole reply that was no JSON although the schema was to be enforced."""
        self.ignored_schemas += 1
        if self.ignored_schemas >= IGNORED_SCHEMAS:
            self.structured = False


def build_servers(
    endpoints: Sequence[Endpoint], timeout_s: float, limits: Callable[[int], RateLimits]
) -> list[Server]:
    """The servers of all endpoints; ``limits`` gives those of the endpoint at a place.

    Raises EndpointError naming the missing setting.
    """
    if not endpoints:
        raise EndpointError(
            "backend openai needs an endpoint and runtime.endpoints is empty; add one in "
            "conf/runtime (base_url and api_key_env), or choose the offline teacher"
        )
    servers: list[Server] = []
    for place, endpoint in enumerate(endpoints):
        key = os.environ.get(endpoint.api_key_env, "") if endpoint.api_key_env else "none"
        if not key:
            raise EndpointError(
                f"endpoint {endpoint.base_url}: environment variable {endpoint.api_key_env} is "
                "not set; export the key under that name (or set api_key_env to '' where the "
                "server wants no key)"
            )
        servers.append(Server(endpoint, limits(place), key, timeout_s))
    return servers
