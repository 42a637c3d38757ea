"""Work that ranks share out among themselves, each result a file that all of them read.

Nobody waits in a collective for hours of uneven work, and what a kill interrupts goes on where it
stopped, with any number of ranks. The folder must be one that every rank sees.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from astra.stage import Progress
from astra.train.distributed import rank, world_size
from astra.train.errors import TrainingError

POLL_S = 0.5
"""Seconds between two looks for the files of other ranks (ours)."""

Item = TypeVar("Item")


def shared_work(
    items: Sequence[tuple[str, Item]],
    make: Callable[[Item], Any],
    folder: Path,
    patience_s: float,
    progress: Progress,
) -> list[Any]:
    """``make`` of every item, in order; each made once, by one rank, and never again.

    ``items`` are pairs of a key, by which a result is found, and what to make it of. Results are
    JSON. Raises TrainingError where no further result comes for ``patience_s`` seconds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{key}.json" for key, _ in items]
    for at in range(rank(), len(items), world_size()):
        if not files[at].exists():
            _write(files[at], make(items[at][1]))
            progress.reach(sum(file.exists() for file in files))
    missing, newest = [file for file in files if not file.exists()], time.monotonic()
    while missing:
        if time.monotonic() - newest > patience_s:
            owing = files.index(missing[0]) % world_size()
            raise TrainingError(
                f"rank {rank()} waited {patience_s:.0f} s for rank {owing} to write "
                f"{missing[0]}; {len(missing)} of {len(files)} files are missing. Do all nodes see "
                "this folder? Is that rank alive?"
            )
        time.sleep(POLL_S)
        there = [file for file in missing if file.exists()]
        if there:
            missing, newest = [file for file in missing if file not in there], time.monotonic()
            progress.reach(len(files) - len(missing))
    progress.close()
    return [json.loads(file.read_text()) for file in files]


def _write(file: Path, result: Any) -> None:
    """Put the whole file in place at once: a rank that sees it can read it."""
    fresh = file.with_suffix(f".{rank()}.new")
    fresh.write_text(json.dumps(result))
    os.replace(fresh, file)
