"""The gateway: what a stage's roles share (endpoints, places, desk, run log).

A teacher and a judge of one stage draw on the same endpoints, so their limits are kept in
common. Whoever runs the stage owns the gateway (``llm.build.Teachers``) and closes it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from astra.errors import AstraError
from astra.llm.budget import check_price
from astra.llm.desk import open_desk
from astra.llm.places import Places
from astra.llm.servers import Server, build_servers
from astra.llm.usage import Usage
from astra.settings import RuntimeConfig
from astra.stage import Reporter
from astra.tracking.mlflow import track

if TYPE_CHECKING:
    from astra.llm.endpoints import Again

log = logging.getLogger("astra")


class Gateway:
    """What the roles of one stage share. It is used in one event loop at a time.

    Raises EndpointError without an endpoint or key.
    """

    def __init__(
        self, runtime: RuntimeConfig, stage: str, reporter: Reporter | None = None
    ) -> None:
        """``reporter``: its progress lines also tell rate, cost and cache hits."""
        self.runtime = runtime
        self.desk = open_desk(runtime, stage)
        self.servers: list[Server] = build_servers(
            runtime.endpoints, runtime.request_timeout_s, self.desk.limits
        )
        self.usages: list[Usage] = []
        self.reporter = reporter or Reporter()
        self.reporter.notes.append(self.note)
        self.paced = self.desk.limited or any(e.tokens_per_minute for e in runtime.endpoints)
        """Whether the tokens of a request have to be estimated before it is sent."""
        self.answered: dict[str, Again] = {}
        """The last ask of each model that has an answer, of any role, to be sent once more."""
        self._places: dict[str, Places] = {}
        self._doubts: dict[str, asyncio.Lock] = {}
        self._stage = stage
        self._loop: asyncio.AbstractEventLoop | None = None
        self._life: AsyncGenerator[None] | None = None
        self._started = time.monotonic()
        self._closed = False

    def usage(self, model: str) -> Usage:
        """New counters for a role. Raises AstraError if its model needs a price and has none."""
        check_price(self.runtime.budget, self.runtime.prices, model.removeprefix("openai:"))
        usage = Usage(self._stage, model)
        self.usages.append(usage)
        return usage

    def places(self, model: str) -> Places:
        """A model's places in flight; each model has its own, so that none starves another."""
        places = self._places.get(model)
        if places is None:
            places = self._places[model] = Places(self.runtime.concurrency)
        return places

    def doubt(self, model: str) -> asyncio.Lock:
        """Held while it is found out whether a model still answers, so that it is done once."""
        return self._doubts.setdefault(model, asyncio.Lock())

    async def enter(self) -> None:
        """Open the connections in the running event loop; cheap where they are open already.

        Whoever asks calls it first.
        """
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return
        self._loop = loop
        self._places.clear()
        self._doubts.clear()
        for server in self.servers:
            server.open()
        # The loop ends its asynchronous generators, and this one then closes the connections.
        self._life = self._lifetime()
        await anext(self._life)

    async def _lifetime(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self._loop = self._life = None
            for server in self.servers:
                await server.close()

    def note(self) -> str:
        """Rate, cost and cache hits so far, for progress lines."""
        answers = sum(usage.answers for usage in self.usages)
        hits = sum(usage.cache_hits for usage in self.usages)
        if not answers + hits:
            return ""
        elapsed = max(time.monotonic() - self._started, 1e-9)
        tokens = sum(usage.prompt_tokens + usage.completion_tokens for usage in self.usages)
        money = sum(usage.cost for usage in self.usages)
        failures = sum(usage.failures for usage in self.usages)
        parts = [f"{answers} answers", f"{tokens / elapsed:.0f} tokens/s"]
        if money > 0:
            parts.append(f"cost {money:.2f}")
        if hits > 0:
            parts.append(f"{hits} from the cache")
        if failures > 0:
            parts.append(f"{failures} asks failed")
        return ", ".join(parts)

    def close(self) -> None:
        """Write the run log and close the desk; idempotent.

        Connections close with the event loop that they were used in.
        """
        if self._closed:
            return
        self._closed = True
        self.reporter.notes.remove(self.note)
        self.desk.close()
        for usage in self.usages:
            usage.write()
            if usage.requests or usage.cache_hits:
                log.info("%s", usage.summary())

    def track(self) -> None:
        """Log the numbers of the run log as MLflow runs, one per role that asked anything."""
        for usage in self.usages:
            if not (usage.requests or usage.cache_hits):
                continue
            numbers = {
                name: value
                for name, value in usage.document().items()
                if isinstance(value, int | float)
            }
            numbers |= {f"faults.{kind}": count for kind, count in usage.faults.items()}
            try:
                with track(f"{self._stage}.asks", self.runtime.budget, {}, self.runtime) as run:
                    run.tags(model=usage.model)
                    run.metrics(numbers, step=0)
            except AstraError as error:
                log.error("usage is in runs/usage.jsonl only: %s", error)
