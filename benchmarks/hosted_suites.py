"""What the benchmarks that host a suite as worlds have in common: options, progress, last line."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from astra.bench.harness.hosted import HostedDesk

PROGRESS_S = 20.0
log = logging.getLogger(__name__)


def options(about: str | None, part: str, parts: Collection[str]) -> argparse.Namespace:
    """The options of the command line; ``part`` is what a suite is divided into, such as domain."""
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument(f"--{part}", choices=parts, action="append", help="all by default")
    parser.add_argument("--count", type=int, help=f"so many of each {part}; all by default")
    parser.add_argument("--differences", type=Path, help="where verdicts that differ are listed")
    parser.add_argument("--json", action="store_true", help="print nothing but the figures")
    wanted = parser.parse_args()
    level = logging.WARNING if wanted.json else logging.INFO
    logging.basicConfig(level=level, stream=sys.stderr, format="%(message)s")
    return wanted


@dataclass
class SuiteRun:
    """One run over a suite, and what it took by the end."""

    desk: HostedDesk
    faults: list[str]
    """What ended in a way that neither side means; failed writes are added at the end."""
    started: float = field(default_factory=time.monotonic)
    told: float = field(default_factory=time.monotonic)
    cpu_s: float = 0.0
    seconds: float = 0.0

    def progress(self, part: str, entries: int, verdicts: int, differ: int) -> None:
        """Log how far it is, every so often."""
        if time.monotonic() - self.told > PROGRESS_S:
            self.told = time.monotonic()
            log.info(
                "%s: %d played, %d verdicts, %d differ, %.0f s",
                part, entries, verdicts, differ, self.told - self.started,
            )  # fmt: skip


@contextmanager
def suite_run(driver: str, faults: list[str]) -> Generator[SuiteRun]:
    """A run with the desk of ``driver``, which is closed at the end."""
    run = SuiteRun(HostedDesk(driver), faults)
    try:
        yield run
        run.cpu_s = time.process_time() + run.desk.ask("cpu_seconds")
    finally:
        run.desk.close()
    faults += [f"failed, and wrote: {call}" for call in run.desk.failed_writes]
    run.seconds = time.monotonic() - run.started


def conclude(
    figures: dict[str, Any], bad: Sequence[str], differences: Sequence[Any], path: Path | None
) -> None:
    """Print the figures and list the differences in ``path``; exit 1 if one of ``bad`` is there."""
    if path:
        lines = [json.dumps(one, ensure_ascii=False) + "\n" for one in differences]
        path.write_text("".join(lines), encoding="utf-8")
    print(json.dumps(figures))
    if any(figures[name] for name in bad):
        sys.exit(1)
