"""What each run of world_learning.py did, kept beside the pages: runs of several machines add up.

A run takes half an hour and more, and there are a dozen. What one machine has run, another finds in
``docs/world-runs.jsonl``, a line a run, and does not run again. A run counts where its recipe is
the one of now: its settings, the goals it is scored on and the policy it began with.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from filelock import FileLock
from pydantic import BaseModel, ConfigDict
from staged import ROOT

from astra.records.base import canonical_json

RUNS = ROOT / "docs/world-runs.jsonl"
LOCK = ROOT / "runs/world-runs.lock"


class Score(NamedTuple):
    """What a policy did on a goal: whether it reached it greedily and as RL samples, and which
    share of the calls of the goal's own trace it made greedily."""

    success: float
    sampled: float
    credit: float


class WorldRun(BaseModel):
    """A policy that was trained, and its episodes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    arm: str
    seed: int
    recipe: str
    cpu_s: float
    """CPU seconds of its training; 0 of the start."""
    buys: int | None
    """Steps of SFT that this CPU time pays for, as measured on the machine that spent it. None
    where no control has need of it."""
    along: dict[str, dict[str, float]]
    """Credit and success on training goals and on the development domain's."""
    goals: dict[str, Score]
    """The held-out goals, by id."""


def kept(file: Path = RUNS) -> dict[tuple[str, int], WorldRun]:
    """All runs of a file by arm and seed, whatever their recipe; none where there is no file."""
    lines = file.read_text().splitlines() if file.exists() else []
    found = map(WorldRun.model_validate_json, lines)
    return {(one.arm, one.seed): one for one in found}


def keep(run: WorldRun, file: Path = RUNS) -> None:
    """Put a run in the place of the one of its arm and seed; two that end at once are both kept."""
    LOCK.parent.mkdir(exist_ok=True)
    with FileLock(LOCK):
        runs = kept(file) | {(run.arm, run.seed): run}
        lines = [canonical_json(runs[key].model_dump(mode="json")) for key in sorted(runs)]
        part = file.with_suffix(".part")
        part.write_text("".join(f"{line}\n" for line in lines))
        part.replace(file)
