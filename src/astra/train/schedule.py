"""The phases of a training (rStar2's schedule), and the band of arenas that one trains in."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from astra.arena.irrelevant import draw
from astra.records.base import content_id
from astra.records.environment import Arena
from astra.rollout.driver import Driver
from astra.rollout.engine import Sampling
from astra.rollout.live import EpisodeJob, RolloutLimits
from astra.stage import Progress
from astra.train.errors import TrainingError
from astra.train.exchange import patience_s
from astra.train.groups import seed_of
from astra.train.rl_config import RLBand, RLConfig
from astra.train.shared_work import shared_work

ARENAS_AT_ONCE = 32
"""Arenas that the filter judges at once: what a kill costs each rank at most."""


@dataclass(frozen=True)
class Phase:
    """``first_step`` counts over the whole training; ``origin`` is where its optimizer began."""

    number: int
    first_step: int
    steps: int
    origin: int
    limits: RolloutLimits
    band: RLBand | None = None
    refresh: bool = False

    @property
    def fresh_optimizer(self) -> bool:
        return self.origin == self.first_step

    @property
    def trainer_steps(self) -> int:
        """Steps of this phase's trainer, those of phases whose optimizer it continues included."""
        return self.first_step + self.steps - self.origin


def phases(config: RLConfig) -> list[Phase]:
    """The schedule, or one phase of ``steps``."""
    if not config.schedule:
        return [Phase(0, 0, config.steps, 0, config.limits)]
    planned: list[Phase] = []
    first = origin = 0
    for number, phase in enumerate(config.schedule):
        if phase.reset_optimizer:
            origin = first
        changed = {
            name: value
            for name in ("max_turns", "max_response_tokens")
            if (value := getattr(phase, name)) is not None
        }
        limits = config.limits.model_copy(update=changed)
        planned.append(Phase(number, first, phase.steps, origin, limits, phase.band, phase.refresh))
        first += phase.steps
    return planned


class Passes(NamedTuple):
    """How often the policy solved an arena, of the rollouts that our machinery did not lose."""

    passes: int
    rollouts: int

    def is_in(self, band: RLBand) -> bool:
        """Whether the arena stays; one with a rollout that was lost does."""
        return self.rollouts < band.rollouts or band.least <= self.passes <= band.most


def passes_of(
    arenas: Sequence[Arena], rollouts: int, driver: Driver, config: RLConfig, folder: Path
) -> dict[str, Passes]:
    """How often the policy as it is solves each arena in so many rollouts, by the arena's id.

    Every rank judges its share, block by block, each written to a file in ``folder``: run again
    after a kill it goes on where it stopped, with the same verdicts.
    """
    ordered = sorted(arenas, key=lambda arena: arena.id)
    blocks = [ordered[at : at + ARENAS_AT_ONCE] for at in range(0, len(ordered), ARENAS_AT_ONCE)]
    verdicts = shared_work(
        [(content_id([rollouts, [arena.id for arena in block]]), block) for block in blocks],
        lambda block: _rolled(block, rollouts, driver, config),
        folder / "band",
        patience_s(config),
        Progress(f"blocks of {ARENAS_AT_ONCE} arenas", len(blocks)),
    )
    return {id: Passes(*found) for verdict in verdicts for id, found in verdict.items()}


def in_band(arenas: Sequence[Arena], passes: Mapping[str, Passes], band: RLBand) -> list[Arena]:
    """The arenas of the band, by id. Raises TrainingError where there is none."""
    kept = [
        arena
        for arena in sorted(arenas, key=lambda arena: arena.id)
        if passes[arena.id].is_in(band)
    ]
    if not kept:
        solved = sum(found.passes > band.most for found in passes.values())
        raise TrainingError(
            f"of {len(arenas)} training arenas the policy solves {solved} more than {band.most} of "
            f"{band.rollouts} times and the others less than {band.least} times: nothing is left "
            "to train on; widen band in rl.schedule, or make harder or easier arenas"
        )
    return kept


def _rolled(
    block: Sequence[Arena], times: int, driver: Driver, config: RLConfig
) -> dict[str, Passes]:
    """``Passes`` of each arena of a block, by id."""
    jobs: list[EpisodeJob] = []
    for arena in block:
        rng = random.Random(f"{config.seed}:solved:{arena.id}")
        extra = draw(arena, config.irrelevant_tools, config.irrelevant_per_band, rng)
        jobs += [EpisodeJob(arena, extra)] * times
    seed = seed_of(config.seed, "solved", *(arena.id for arena in block))
    rollouts = driver.run(jobs, Sampling(config.temperature, seed))
    found: dict[str, Passes] = {}
    for at, arena in enumerate(block):
        own = rollouts[at * times : (at + 1) * times]
        scores = [rollout.score for rollout in own if rollout.score is not None]
        found[arena.id] = Passes(sum(score.success for score in scores), len(scores))
    return found
