"""What every stage file shares: logging, progress off and on a terminal, clean error exits."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar

from astra.errors import AstraError

log = logging.getLogger("astra")
Item = TypeVar("Item")
REPORT_EVERY_S = 60.0
REPORT_EVERY_TTY_S = 5.0
AT_END: list[Callable[[], None]] = []
"""Run once when the stage ends, whichever way; reports on the run register themselves here."""
NOTES: list[Callable[[], str]] = []
"""What else a progress line says, for example the cost so far."""


def run_stage(name: str, main: Callable[[], None]) -> None:
    """Run a stage's ``main``; a user-facing error ends the process with its message, exit 1."""
    logging.basicConfig(
        level=os.environ.get("ASTRA_LOG", "INFO").upper(),
        format=f"[{name}] %(message)s",
        stream=sys.stderr,
        force=True,
    )
    for noisy in ("httpx", "httpcore", "mcp", "openai", "urllib3", "alembic", "mlflow"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    AT_END.clear()
    NOTES.clear()
    started = time.monotonic()
    try:
        main()
    except AstraError as error:
        log.error("%s", error)
        raise SystemExit(1) from None
    except BaseExceptionGroup as group:
        # Tasks that run together fail together; only if all are for the user to read.
        leaves = list(_leaves(group))
        if not all(isinstance(leaf, AstraError) for leaf in leaves):
            raise
        for leaf in leaves:
            log.error("%s", leaf)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        log.error("interrupted; run the same command again to resume")
        raise SystemExit(130) from None
    finally:
        while AT_END:
            AT_END.pop()()
    log.info("done in %.1f s", time.monotonic() - started)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


class ReportClock:
    """Spaces the lines of all reporters of a process: one a minute off a terminal."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def due(self) -> bool:
        """Whether it is time for a line; who asks and hears yes has to write it."""
        now = time.monotonic()
        every = REPORT_EVERY_TTY_S if sys.stderr.isatty() else REPORT_EVERY_S
        if now - self.last < every:
            return False
        self.last = now
        return True


CLOCK = ReportClock()


class Progress:
    """One line now and then: done of total, rate, time left, drops by reason, and what ``NOTES``
    add. Cheap to call per item.
    """

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._drops: Counter[str] = Counter()
        self._note = ""
        self._started = time.monotonic()

    def advance(self, by: int = 1, note: str = "") -> None:
        """Count finished items; ``note`` (a loss, say) ends the next line."""
        self._done += by
        self._note = note
        if CLOCK.due():
            self._report()

    def drop(self, reason: str) -> None:
        """Count one rejected item and advance."""
        self._drops[reason] += 1
        self.advance()

    def close(self) -> None:
        self._report()

    def _report(self) -> None:
        rate = self._done / max(time.monotonic() - self._started, 1e-9)
        parts = [f"{self._what} {self._done}", f"{rate:.1f}/s"]
        if self._total is not None:
            parts[0] += f"/{self._total}"
            if 0 < self._done < self._total:
                parts.append(f"{_duration((self._total - self._done) / rate)} left")
        parts += [text for note in NOTES if (text := note())]
        if self._drops:
            reasons = (f"{reason} {count}" for reason, count in self._drops.most_common(4))
            parts.append(f"dropped: {', '.join(reasons)}")
        if self._note:
            parts.append(self._note)
        log.info("%s", ", ".join(parts))


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def blocking(items: AsyncIterator[Item]) -> Iterator[Item]:
    """An asynchronous iterator drawn from synchronous code, one item at a time."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        try:
            while True:
                try:
                    yield loop.run_until_complete(anext(items))
                except StopAsyncIteration:
                    return
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                loop.run_until_complete(close())
