"""What every stage file shares: opening, logging, progress, metrics, and one way to end."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Generic, TypeVar

from astra.errors import AstraError
from astra.progress import Progress, Reporter, follow
from astra.settings import Config, RuntimeConfig, load
from astra.store.metrics import StageMetrics
from astra.tracking.mlflow import Run, track

log = logging.getLogger("astra")
Opened = TypeVar("Opened")


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
        """Progress that whoever works advances; closed with the stage."""
        progress = Progress(what, total, self.metrics.dropped, self.reporter)
        self.ends.callback(progress.close)
        return progress

    def follow(self, counted: str, total: int, what: str = "") -> Progress:
        """Progress of what the metrics count under ``counted``; closed with the stage.

        ``what``: how lines call it, if not by the name of the count.
        """
        progress = follow(self.metrics, counted, total, self.reporter, what)
        self.ends.callback(progress.close)
        return progress


@contextmanager
def open_stage(name: str, model: type[Config]) -> Generator[Stage[Config]]:
    """A training or benchmark stage. Unless it fails, its metrics are written before what it
    entered is left; where several processes train, by the first one.
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
    usual = "INFO" if is_first_rank() else "WARNING"  # ranks say the same
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
        told = user_errors(error)
        if not told:
            raise
        for one in told:
            log.error("%s", one)
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
    told = [leaf for leaf in leaves if isinstance(leaf, AstraError)]
    return told if len(told) == len(leaves) else []


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
