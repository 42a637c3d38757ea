"""What every stage file shares: logging, progress off and on a terminal, clean error exits."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from astra.errors import AstraError

log = logging.getLogger("astra")
Item = TypeVar("Item")
REPORT_EVERY_S = 60.0
REPORT_EVERY_TTY_S = 5.0
AT_END: list[Callable[[], None]] = []
"""Run once when the stage ends, whichever way; reports on the run register themselves here."""
NOTES: list[Callable[[], str]] = []
"""What else a progress line says, for example the cost so far."""
OPEN: list[Progress] = []
"""Progress that is not closed yet; ``tick`` writes the last one's line."""


def run_stage(name: str, main: Callable[[], None]) -> None:
    """Run a stage's ``main``; a user-facing error ends the process with its message, exit 1."""
    usual = "INFO" if os.environ.get("RANK", "0") == "0" else "WARNING"  # ranks say the same
    logging.basicConfig(
        level=os.environ.get("ASTRA_LOG", usual).upper(),
        format=f"[{name}] %(message)s",
        stream=sys.stderr,
        force=True,
    )
    for noisy in ("httpx", "httpx2", "httpcore", "mcp", "openai", "urllib3", "alembic", "mlflow"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    AT_END.clear()
    NOTES.clear()
    OPEN.clear()
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


def tick() -> None:
    """A progress line if one is due; for slow work inside an item, such as a teacher's answer."""
    if not CLOCK.due():
        return
    if OPEN:
        OPEN[-1].report()
    elif noted := _notes():
        log.info("%s", noted)


def _notes() -> str:
    return ", ".join(text for note in NOTES if (text := note()))


class Progress:
    """One line now and then: done of total, rate, time left, drops by reason, and what ``NOTES``
    add. Cheap to call per item. Before a hundredth is done the time left is anybody's guess.
    """

    def __init__(
        self, what: str, total: int | None = None, drops: Counter[str] | None = None
    ) -> None:
        """``drops``: where rejections are counted by reason, if not through ``drop``."""
        self._what = what
        self._total = total
        self._done = 0
        self._drops = Counter[str]() if drops is None else drops
        self._note = ""
        self._started = time.monotonic()
        OPEN.append(self)

    def advance(self, by: int = 1, note: str = "") -> None:
        """Count finished items; ``note`` (a loss, say) ends the next line."""
        self.reach(self._done + by, note)

    def reach(self, done: int, note: str = "") -> None:
        """So many items are finished in all."""
        self._done = done
        self._note = note
        tick()

    def drop(self, reason: str) -> None:
        """Count one rejected item and advance."""
        self._drops[reason] += 1
        self.advance()

    def drawn(self, items: Iterable[Item]) -> Iterator[Item]:
        """``items``, each of which counts as finished when the next one is drawn."""
        for item in items:
            yield item
            self.advance()

    def close(self) -> None:
        OPEN.remove(self)
        self.report()

    def report(self) -> None:
        rate = self._done / max(time.monotonic() - self._started, 1e-9)
        parts = [f"{self._what} {self._done}", f"{rate:.1f}/s"]
        if self._total is not None:
            parts[0] += f"/{self._total}"
            if 0 < self._total <= 100 * self._done < 100 * self._total:
                parts.append(f"{_duration((self._total - self._done) / rate)} left")
        if noted := _notes():
            parts.append(noted)
        if self._drops:
            reasons = (f"{reason} {count}" for reason, count in self._drops.most_common(4))
            parts.append(f"dropped: {', '.join(reasons)}")
        if self._note:
            parts.append(self._note)
        log.info("%s", ", ".join(parts))


class Counts(Protocol):
    """A stage's metrics, as far as progress needs them."""

    counts: Counter[str]
    dropped: Counter[str]
    on_count: Callable[[], None]


def follow(metrics: Counts, name: str, total: int) -> Progress:
    """Progress of what ``metrics`` count under ``name``, with their drops by reason."""
    progress = Progress(name.replace("_", " "), total, metrics.dropped)
    metrics.on_count = lambda: progress.reach(metrics.counts[name])
    return progress


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
