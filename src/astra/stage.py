"""What every stage file shares: parameters, logging, progress lines, metrics, and its end.

Progress is one line now and then, on a terminal and off it, never one per item.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Generic, Protocol, TypeVar

from astra.errors import AstraError
from astra.settings import Config, RuntimeConfig, load
from astra.store.metrics import StageMetrics
from astra.tracking.mlflow import Run, track

log = logging.getLogger("astra")
REPORT_EVERY_S = 60.0
REPORT_EVERY_TTY_S = 5.0
TOLD_REASONS = 4
"""How many reasons for drops a line tells while a stage goes on; its last line tells all."""
Opened = TypeVar("Opened")


class Reporter:
    """Decides when the progress of one stage writes its next line, and what each line adds."""

    def __init__(self) -> None:
        self.notes: list[Callable[[], str]] = []
        """What else a line says, for example the cost so far; an empty text says nothing."""
        self.open: list[Progress] = []
        """The progress that is not closed yet; the last one writes the next line."""
        self._last = time.monotonic()

    def tick(self) -> None:
        """Write a line if one is due; for slow work inside an item, such as a teacher's answer."""
        now = time.monotonic()
        every = REPORT_EVERY_TTY_S if sys.stderr.isatty() else REPORT_EVERY_S
        if now - self._last < every:
            return
        self._last = now
        if self.open:
            self.open[-1].report()
        elif noted := self.noted():
            log.info("%s", noted)

    def noted(self) -> str:
        """What all notes say, in one text."""
        return ", ".join(text for note in self.notes if (text := note()))


class Progress:
    """Counts the finished items of a stage and writes a line about them now and then.

    A line holds how many of the total are done, the rate, the time left, the most frequent
    reasons for drops, and what the reporter's notes add. Counting is cheap enough to be done per
    item. The time left is told once a hundredth is done; before, it would be a guess.
    """

    def __init__(
        self,
        what: str,
        total: int | None = None,
        drops: Counter[str] | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        """``drops``: where rejections are counted by reason, if any are.

        A progress without a ``reporter`` decides by itself when its next line is due.
        """
        self._what = what
        self._total = total
        self._done = 0
        self._drops = Counter[str]() if drops is None else drops
        self._note = ""
        self._started = time.monotonic()
        self._reporter = reporter or Reporter()
        self._reporter.open.append(self)

    def advance(self, by: int = 1, note: str = "") -> None:
        """Count finished items; ``note`` (a loss, say) ends the next line."""
        self.reach(self._done + by, note)

    def reach(self, done: int, note: str = "") -> None:
        """So many items are finished in all."""
        self._done = done
        self._note = note
        self._reporter.tick()

    def close(self, kept: str = "") -> None:
        """Write the last line; idempotent.

        ``kept``: what became of the items, for example ``12 rows in data/tasks.parquet``. The
        line then tells every reason for a drop.
        """
        if self in self._reporter.open:
            self._reporter.open.remove(self)
            self.report(kept)

    def report(self, kept: str = "") -> None:
        """Write a line now; ``kept`` as in ``close``."""
        rate = self._done / max(time.monotonic() - self._started, 1e-9)
        parts = [f"{self._what} {self._done}", f"{rate:.1f}/s"]
        if self._total is not None:
            parts[0] += f"/{self._total}"
            if 0 < self._total <= 100 * self._done < 100 * self._total:
                parts.append(f"{_duration((self._total - self._done) / rate)} left")
        if noted := self._reporter.noted():
            parts.append(noted)
        if self._drops:
            parts.append(f"dropped {self._reasons(None if kept else TOLD_REASONS)}")
        if self._note:
            parts.append(self._note)
        if kept:
            parts[0] += f" -> {kept}"
        log.info("%s", ", ".join(parts))

    def _reasons(self, most: int | None) -> str:
        """How many items were dropped, and how many for each of the ``most`` frequent reasons."""
        reasons = (f"{reason} {count}" for reason, count in self._drops.most_common(most))
        return f"{self._drops.total()}: {', '.join(reasons)}"


class Counts(Protocol):
    """A stage's metrics, as far as progress needs them."""

    counts: Counter[str]
    dropped: Counter[str]
    on_count: Callable[[], None]


def follow(
    metrics: Counts, name: str, total: int, reporter: Reporter | None = None, what: str = ""
) -> Progress:
    """The progress of what ``metrics`` count under ``name``, with their drops by reason.

    ``what``: how lines call it, if not by that name.
    """
    progress = Progress(what or name.replace("_", " "), total, metrics.dropped, reporter)
    metrics.on_count = lambda: progress.reach(metrics.counts[name])
    return progress


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


class Stage(Generic[Config]):
    """What a stage has while it runs: parameters, metrics, progress, and what ends with it."""

    def __init__(self, name: str, model: type[Config]) -> None:
        self.name = name
        self.config = load(name, model)
        self.runtime = load("runtime", RuntimeConfig)
        self.metrics = StageMetrics(name)
        self.reporter = Reporter()
        self.ends = ExitStack()
        """Closed when the stage ends, whichever way, the last one first."""

    def enter(self, context: AbstractContextManager[Opened]) -> Opened:
        """Open what the stage needs until its end: a sandbox, a lock, a temporary table."""
        return self.ends.enter_context(context)

    def track(self, inputs: Mapping[str, str]) -> Run:
        """The stage's MLflow run; ``inputs`` are the digests of what it reads."""
        return self.enter(track(self.name, self.config, inputs, self.runtime))

    def progress(self, what: str, total: int | None = None) -> Progress:
        """A progress that the caller advances; it is closed with the stage."""
        progress = Progress(what, total, self.metrics.dropped, self.reporter)
        self.ends.callback(progress.close)
        return progress

    def follow(self, counted: str, total: int, what: str = "") -> Progress:
        """The progress of what the metrics count under ``counted``; it is closed with the stage.

        ``what``: how lines call it, if not by the name of the count.
        """
        progress = follow(self.metrics, counted, total, self.reporter, what)
        self.ends.callback(progress.close)
        return progress


@contextmanager
def open_stage(name: str, model: type[Config]) -> Generator[Stage[Config]]:
    """Open a training or benchmark stage.

    Unless it fails, its metrics are written before what it entered is left. Where several
    processes train, the first one writes them.
    """
    stage = Stage(name, model)
    with stage.ends:
        yield stage
        if is_first_rank():
            stage.metrics.write()


def is_first_rank() -> bool:
    """Whether this process speaks for all that torchrun or accelerate started."""
    return os.environ.get("RANK", "0") == "0"


def run_stage(name: str, main: Callable[[], None]) -> None:
    """Run a stage's ``main``; a user-facing error ends the process with its message, exit 1."""
    usual = "INFO" if is_first_rank() else "WARNING"  # the other ranks would repeat the first
    logging.basicConfig(
        level=os.environ.get("ASTRA_LOG", usual).upper(),
        format=f"[{name}] %(message)s",
        stream=sys.stderr,
        force=True,
    )
    for noisy in ("httpx", "httpx2", "httpcore", "mcp", "openai", "urllib3", "alembic", "mlflow"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    started = time.monotonic()
    try:
        main()
    except (AstraError, BaseExceptionGroup) as error:
        readable = user_errors(error)
        if not readable:
            raise
        for reason in readable:
            log.error("%s", reason)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        log.error("interrupted; run the same command again to resume")
        raise SystemExit(130) from None
    log.info("done in %.1f s", time.monotonic() - started)


def user_errors(error: BaseException) -> list[AstraError]:
    """The errors for the user that ``error`` consists of; none if any part of it is a bug.

    Tasks that run together fail together, as a group.
    """
    leaves = list(_leaves(error))
    readable = [leaf for leaf in leaves if isinstance(leaf, AstraError)]
    return readable if len(readable) == len(leaves) else []


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group of groups, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
