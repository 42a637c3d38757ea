"""Generation in this process: one thread owns the model, requests join its batch as they come."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from astra.serving.generation import Generated, GenerationError, GenerationSettings

log = logging.getLogger(__name__)

SHUTDOWN = "the server is shutting down"


@dataclass
class _Job:
    ids: list[int]
    decoding: GenerationSettings
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[Generated]
    given_up: bool = False

    def settle(self, result: Generated | Exception) -> None:
        self.loop.call_soon_threadsafe(self._settle, result)

    def _settle(self, result: Generated | Exception) -> None:
        if self.done.done():
            return
        if isinstance(result, Exception):
            self.done.set_exception(result)
        else:
            self.done.set_result(result)


class LocalGenerator:
    """``engine`` is a ServingEngine, ``context`` what its model takes."""

    def __init__(self, engine: Any, context: int) -> None:
        self.context = context
        self.peak_rows = 0
        """Most requests that were ever generated side by side."""
        self._engine = engine
        self._jobs: queue.Queue[_Job | None] = queue.Queue()
        self._live: dict[int, _Job] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="generation", daemon=True)
        self._thread.start()

    async def generate(self, ids: Sequence[int], decoding: GenerationSettings) -> Generated:
        if self._closed:
            raise GenerationError(SHUTDOWN)
        loop = asyncio.get_running_loop()
        job = _Job(list(ids), decoding, loop, loop.create_future())
        self._jobs.put(job)
        try:
            return await job.done
        finally:
            job.given_up = True

    async def close(self) -> None:
        """End what is being generated, and the thread."""
        self._closed = True
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        while self._take():
            try:
                self._advance()
            except Exception as error:
                # One request's fault must not end the server; what shared its batch is lost.
                log.exception("generation failed")
                self._fail(f"{type(error).__name__}: {error}")
        self._fail(SHUTDOWN)
        while not self._jobs.empty():
            job = self._jobs.get_nowait()
            if job is not None:
                job.settle(GenerationError(SHUTDOWN))

    def _take(self) -> bool:
        """Let waiting requests join; sleeps while there is nothing to do. False: shut down."""
        while len(self._live) < self._engine.max_rows:
            try:
                job = self._jobs.get(block=not self._live)
            except queue.Empty:
                break
            if job is None:
                return False
            if job.given_up:
                continue
            try:
                self._live[self._engine.add(job.ids, job.decoding)] = job
            except Exception as error:
                log.exception("a prompt failed")
                job.settle(GenerationError(f"{type(error).__name__}: {error}"))
        self.peak_rows = max(self.peak_rows, len(self._live))
        return True

    def _advance(self) -> None:
        for turn in self._engine.step():
            # Answered first: one that is no longer live would wait for ever if the engine failed.
            self._live.pop(turn.row).settle(Generated(turn.ids, turn.finish))
            self._engine.leave(turn.row, turn)
        for row in [row for row, job in self._live.items() if job.given_up]:
            del self._live[row]
            self._engine.leave(row, None)

    def _fail(self, reason: str) -> None:
        for job in self._live.values():
            job.settle(GenerationError(reason))
        self._live.clear()
        self._engine.clear()
