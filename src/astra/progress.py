"""Progress lines of long work, on a terminal and off it: one now and then, never one per item."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger("astra")
REPORT_EVERY_S = 60.0
REPORT_EVERY_TTY_S = 5.0


class Reporter:
    """Spaces the lines of all progress of one stage, and says what each line adds."""

    def __init__(self) -> None:
        self.notes: list[Callable[[], str]] = []
        """What else a line says, for example the cost so far; an empty text says nothing."""
        self.open: list[Progress] = []
        """Not closed yet; the last one's line is due next."""
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
    """Done of total, rate, time left, drops by reason, and what the reporter's notes add.

    Cheap to call per item. Before a hundredth is done the time left is anybody's guess.
    """

    def __init__(
        self,
        what: str,
        total: int | None = None,
        drops: Counter[str] | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        """``drops``: where rejections are counted by reason, if any are.

        Without a ``reporter`` the lines are spaced by themselves.
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

    def close(self) -> None:
        """Write the last line; idempotent."""
        if self in self._reporter.open:
            self._reporter.open.remove(self)
            self.report()

    def report(self) -> None:
        """Write a line now."""
        rate = self._done / max(time.monotonic() - self._started, 1e-9)
        parts = [f"{self._what} {self._done}", f"{rate:.1f}/s"]
        if self._total is not None:
            parts[0] += f"/{self._total}"
            if 0 < self._total <= 100 * self._done < 100 * self._total:
                parts.append(f"{_duration((self._total - self._done) / rate)} left")
        if noted := self._reporter.noted():
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


def follow(
    metrics: Counts, name: str, total: int, reporter: Reporter | None = None, what: str = ""
) -> Progress:
    """Progress of what ``metrics`` count under ``name``, with their drops by reason.

    ``what``: how lines call it, if not by that name.
    """
    progress = Progress(what or name.replace("_", " "), total, metrics.dropped, reporter)
    metrics.on_count = lambda: progress.reach(metrics.counts[name])
    return progress


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
