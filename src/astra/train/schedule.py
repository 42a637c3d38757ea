"""The phases of a training (rStar2's schedule), and the filter that drops solved arenas."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
from astra.train.rl_config import RLConfig
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
    drop_solved: int | None = None

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
        planned.append(Phase(number, first, phase.steps, origin, limits, phase.drop_solved))
        first += phase.steps
    return planned


def drop_solved(
    arenas: Sequence[Arena], times: int, driver: Driver, config: RLConfig, folder: Path
) -> list[Arena]:
    """The arenas that are not solved in ``times`` of ``times`` rollouts by the policy as it is.

    Every rank judges its share, block by block, each written to a file in ``folder``: run again
    after a kill it goes on where it stopped, with the same verdicts. An arena with a rollout that
    our machinery lost stays.
    """
    ordered = sorted(arenas, key=lambda arena: arena.id)
    blocks = [ordered[at : at + ARENAS_AT_ONCE] for at in range(0, len(ordered), ARENAS_AT_ONCE)]
    verdicts = shared_work(
        [(content_id([times, [arena.id for arena in block]]), block) for block in blocks],
        lambda block: _solved(block, times, driver, config),
        folder / "solved",
        patience_s(config),
        Progress(f"blocks of {ARENAS_AT_ONCE} arenas", len(blocks)),
    )
    dropped = {arena for verdict in verdicts for arena in verdict}
    kept = [arena for arena in ordered if arena.id not in dropped]
    if not kept:
        raise TrainingError(
            f"the policy solves all {len(ordered)} training arenas {times} of {times} times: "
            "nothing is left to train on; remove drop_solved from rl.schedule or make harder arenas"
        )
    return kept


def _solved(block: Sequence[Arena], times: int, driver: Driver, config: RLConfig) -> list[str]:
    """The ids of the arenas that the policy solves in all of ``times`` rollouts."""
    jobs: list[EpisodeJob] = []
    for arena in block:
        rng = random.Random(f"{config.seed}:solved:{arena.id}")
        extra = draw(arena, config.irrelevant_tools, config.irrelevant_per_band, rng)
        jobs += [EpisodeJob(arena, extra)] * times
    seed = seed_of(config.seed, "solved", *(arena.id for arena in block))
    rollouts = driver.run(jobs, Sampling(config.temperature, seed))
    return [
        arena.id
        for at, arena in enumerate(block)
        if all(
            rollout.score is not None and rollout.score.success
            for rollout in rollouts[at * times : (at + 1) * times]
        )
    ]
