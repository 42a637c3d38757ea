"""Held-out arenas: which are played, and how one engine plays them in this process."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from astra.arena.irrelevant import IrrelevantMode, draw
from astra.arena.worlds import goal_of
from astra.bench.config import BenchConfig
from astra.bench.episodes import classify, rollout_scores
from astra.bench.progress import BenchProgress
from astra.errors import AstraError
from astra.records.base import content_id
from astra.records.bench import BenchEpisode, EpisodeClass
from astra.records.environment import Arena
from astra.records.qa import Split
from astra.rollout.chat import ChatCodec
from astra.rollout.driver import Rollout, RolloutDriver
from astra.rollout.engine import Engine, Sampling
from astra.rollout.live import EpisodeJob
from astra.sandbox.protocol import Sandbox

SUITE_NAME = "arenas"
"""The suite of these episodes in the records."""
CEILING_SUCCESS = 0.98
"""The gold calls must succeed in this share of the arenas, else no score can be trusted."""


class BenchError(AstraError):
    """A score would not mean what it says: no held-out arenas, infra losses, a low ceiling."""


def select(arenas: Iterable[Arena], config: BenchConfig) -> list[Arena]:
    """The held-out arenas to play, in id order; a draw by hash where fewer than all are wanted."""
    held_out = [arena for arena in arenas if arena.split == Split.HELDOUT]
    if not held_out:
        raise BenchError(
            "data/envs_merged.parquet has no held-out arena; raise the number of instances in "
            "conf/qa and run `dvc repro envs_merged`"
        )
    if config.arenas is not None and config.arenas < len(held_out):
        held_out.sort(key=lambda arena: content_id([config.seed, arena.id]))
        held_out = held_out[: config.arenas]
    return sorted(held_out, key=lambda arena: arena.id)


def job_of(arena: Arena, irrelevant: IrrelevantMode, per_band: int, seed: int) -> EpisodeJob:
    """An arena with its irrelevant tools, the same for whoever plays it."""
    rng = random.Random(int(content_id(["bench", seed, arena.id]), 16))
    return EpisodeJob(arena, draw(arena, irrelevant, per_band, rng))


def play_jobs(
    name: str,
    jobs: Sequence[EpisodeJob],
    engine: Engine,
    codec: ChatCodec,
    sandbox: Sandbox,
    config: BenchConfig,
    progress: BenchProgress,
) -> list[BenchEpisode]:
    """One checkpoint's episodes, greedy, in the order of the jobs.

    Raises BenchError when too many are lost to our machinery.
    """
    driver = RolloutDriver(progress.watch(name, engine), codec, sandbox, config.limits)
    rollouts = driver.run(jobs, Sampling(temperature=0.0, seed=config.seed))
    return concluded(name, jobs, rollouts, config, progress)


def concluded(
    name: str,
    jobs: Sequence[EpisodeJob],
    rollouts: Sequence[Rollout],
    config: BenchConfig,
    progress: BenchProgress,
) -> list[BenchEpisode]:
    """The rollouts of a checkpoint as its episodes. Raises BenchError as ``play_jobs``."""
    episodes = [_episode(name, job, rollout) for job, rollout in zip(jobs, rollouts, strict=True)]
    progress.played(name, episodes)
    lost = [one for one in rollouts if one.score is None]
    if len(lost) > config.max_infra_share * len(episodes):
        raise BenchError(
            f"{name}: our own machinery lost {len(lost)} of {len(episodes)} episodes (allowed by "
            f"bench.max_infra_share: {config.max_infra_share:.1%}), the first in arena "
            f"{lost[0].arena.id}: {lost[0].problem or 'no reason was given'}; look at the sandbox "
            "(`astra doctor`) or the server and run again"
        )
    return episodes


def _episode(name: str, job: EpisodeJob, rollout: Rollout) -> BenchEpisode:
    arena, stop = rollout.arena, rollout.stop_reason
    if stop is None:
        raise ValueError(f"arena {arena.id}: the driver returned an episode that did not end")
    goal = goal_of(arena) if arena.world_id else None
    verdict = rollout.score.verdict if rollout.score else None
    return BenchEpisode(
        suite=SUITE_NAME,
        checkpoint=name,
        arena_id=arena.id,
        scenario=arena.scenario,
        kind=arena.kind,
        hops=arena.hops,
        domain=arena.domain,
        tools=len(arena.tools) + len(job.extra_tools),
        scores=rollout_scores(rollout),
        outcome=classify(rollout),
        stop_reason=stop,
        messages=rollout.messages,
        calls=rollout.calls,
        hard=arena.is_hard,
        world_id=arena.world_id,
        goal_traits=goal.traits if goal else (),
        goal_rule=goal.violates if goal else "",
        rules_broken=verdict.rules_broken if verdict else (),
    )


def check_ceiling(episodes: Sequence[BenchEpisode]) -> None:
    """Raises BenchError where the gold calls, played by rule, do not succeed."""
    failed = [e for e in episodes if e.outcome not in (EpisodeClass.SUCCESS, EpisodeClass.INFRA)]
    if len(failed) > (1 - CEILING_SUCCESS) * len(episodes):
        shown = ", ".join(f"{e.arena_id} ({e.outcome}, {e.stop_reason})" for e in failed[:5])
        raise BenchError(
            f"the gold calls fail in {len(failed)} of {len(episodes)} arenas: {shown}; the limits "
            "in conf/bench are too tight for them, or envs_merged must be rebuilt"
        )
