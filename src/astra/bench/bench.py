"""Held-out arenas played greedily by each checkpoint, and by two scripted references."""

from __future__ import annotations

import gc
import logging
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from astra.arena.irrelevant import IrrelevantMode, draw
from astra.arena.reward import FinalAnswer, RewardMode, score_episode
from astra.bench.config import BenchConfig
from astra.bench.progress import BenchProgress
from astra.bench.references import CEILING, FLOOR, scripted_engine
from astra.errors import AstraError
from astra.records.base import content_id
from astra.records.bench import BenchEpisode, EpisodeClass
from astra.records.environment import Arena
from astra.records.message import CallStatus
from astra.records.qa import Split
from astra.records.score import Score, Scored, Unscored
from astra.records.trajectory import StopReason
from astra.rollout.chat import ChatCodec, LoadedPolicy, PolicyConfig, load_codec, load_policy
from astra.rollout.device import prepare_torch
from astra.rollout.driver import Rollout, RolloutDriver
from astra.rollout.engine import Engine, Sampling
from astra.rollout.live import EpisodeJob
from astra.sandbox.build import build_sandbox
from astra.sandbox.protocol import Sandbox
from astra.settings import RuntimeConfig
from astra.tracking.mlflow import digests, track

log = logging.getLogger(__name__)

SUITE = "arenas"
BASE = "base"
REFERENCES = (FLOOR, CEILING)
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


def run_arenas(
    config: BenchConfig,
    runtime: RuntimeConfig,
    arenas: Sequence[Arena],
    table: Path,
    trained: Mapping[str, Path],
) -> list[BenchEpisode]:
    """Every checkpoint on the same arenas with the same irrelevant tools; references first.

    Raises BenchError when the gold calls fail or too many episodes are lost to our machinery.
    """
    jobs = [
        job_of(arena, config.irrelevant_tools, config.irrelevant_per_band, config.seed)
        for arena in arenas
    ]
    device = prepare_torch(runtime, config.seed)
    policies = {BASE: config.policy} | {
        name: PolicyConfig(path=str(path), dtype=config.policy.dtype)
        for name, path in trained.items()
    }
    with build_sandbox(config.sandbox, runtime) as sandbox:
        codec = load_codec(config.policy)
        played: list[BenchEpisode] = []
        # Counted apart: what rules play takes no time, and says nothing about the time left.
        progress = BenchProgress("reference episodes", len(jobs), len(REFERENCES))
        for name in REFERENCES:
            engine = scripted_engine(name, jobs, codec, config.engine_rows)
            played += _play(name, jobs, engine, codec, sandbox, config, progress)
        progress.close()
        _check_ceiling([episode for episode in played if episode.checkpoint == CEILING])
        progress = BenchProgress("episodes", len(jobs), len(policies))
        for name, policy in policies.items():
            played += _measure(
                name, policy, device, jobs, sandbox, config, runtime, table, progress
            )
        progress.close()
    return played


def job_of(arena: Arena, irrelevant: IrrelevantMode, per_band: int, seed: int) -> EpisodeJob:
    """An arena with its irrelevant tools, the same for whoever plays it."""
    rng = random.Random(int(content_id(["bench", seed, arena.id]), 16))
    return EpisodeJob(arena, draw(arena, irrelevant, per_band, rng))


def _measure(
    name: str,
    policy: PolicyConfig,
    device: str,
    jobs: Sequence[EpisodeJob],
    sandbox: Sandbox,
    config: BenchConfig,
    runtime: RuntimeConfig,
    table: Path,
    progress: BenchProgress,
) -> list[BenchEpisode]:
    """One checkpoint, one MLflow run."""
    folder = Path(policy.path)
    inputs = digests(table, folder) if folder.is_dir() else digests(table)
    with track("bench", config, inputs, runtime, part=name) as run:
        run.tags(checkpoint=name, policy=policy.path, revision=policy.revision or "")
        run.tags(sandbox_tier=sandbox.tier, torch_device=device)
        loaded = load_policy(policy, device)
        engine = _engine(loaded, config)
        episodes = _play(name, jobs, engine, loaded.codec, sandbox, config, progress)
        del engine
        del loaded
        gc.collect()
        run.metrics(mean_scores(episodes), step=0)
        for episode in examples(episodes, config.examples):
            attributes = {"arena": episode.arena_id, "outcome": str(episode.outcome)}
            run.trace(f"bench-{name}", episode.messages, episode.calls, attributes)
    log.info("%s: %s", name, ", ".join(f"{k} {v:.3f}" for k, v in mean_scores(episodes).items()))
    return episodes


def _engine(loaded: LoadedPolicy, config: BenchConfig) -> Engine:
    from astra.rollout.batched import BatchedEngine

    codec = loaded.codec
    return BatchedEngine(loaded.model, codec.eos_id, codec.pad_id, config.engine_rows)


def _play(
    name: str,
    jobs: Sequence[EpisodeJob],
    engine: Engine,
    codec: ChatCodec,
    sandbox: Sandbox,
    config: BenchConfig,
    progress: BenchProgress,
) -> list[BenchEpisode]:
    driver = RolloutDriver(progress.watch(name, engine), codec, sandbox, config.limits)
    rollouts = driver.run(jobs, Sampling(temperature=0.0, seed=config.seed))
    episodes = [_episode(name, job, rollout) for job, rollout in zip(jobs, rollouts, strict=True)]
    progress.played(name, episodes)
    lost = sum(episode.outcome == EpisodeClass.INFRA for episode in episodes)
    if lost > config.max_infra_share * len(episodes):
        raise BenchError(
            f"{name}: our own machinery lost {lost} of {len(episodes)} episodes (allowed: "
            f"{config.max_infra_share:.1%}); look at the sandbox (`astra doctor`) and run again"
        )
    return episodes


def _episode(name: str, job: EpisodeJob, rollout: Rollout) -> BenchEpisode:
    arena, stop = rollout.arena, rollout.stop_reason
    if stop is None:
        raise ValueError(f"arena {arena.id}: the driver returned an episode that did not end")
    scores = rollout_scores(rollout)
    return BenchEpisode(
        suite=SUITE,
        checkpoint=name,
        arena_id=arena.id,
        scenario=arena.scenario,
        kind=arena.kind,
        hops=arena.hops,
        domain=arena.domain,
        tools=len(arena.tools) + len(job.extra_tools),
        scores=scores,
        outcome=classify(rollout),
        stop_reason=stop,
        messages=rollout.messages,
        calls=rollout.calls,
    )


def rollout_scores(rollout: Rollout) -> dict[str, Score]:
    """``f1`` counts the final answer as one more sub-task and call; ``f1_plain``, ``precision``
    and ``recall`` are the paper's and need at least one sub-task that needs a tool."""
    score = rollout.score
    if score is None:
        return {}
    text = rollout.messages[-1].content if rollout.stop_reason == StopReason.ANSWERED else None
    plain = score_episode(
        rollout.arena, rollout.calls, text, RewardMode.F1, FinalAnswer.IGNORE,
        end_state=rollout.end_state,
    )  # fmt: skip
    none = Unscored(reason="no sub-task needs a tool")
    return {
        "f1": Scored(value=score.f1),
        "f1_plain": Scored(value=plain.f1) if plain.subtasks else none,
        "precision": Scored(value=plain.precision) if plain.subtasks else none,
        "recall": Scored(value=plain.recall) if plain.subtasks else none,
        "success": Scored(value=float(score.success)),
        "answer": Scored(value=float(score.answer_correct)),
        "calls": Scored(value=float(len(rollout.calls))),
        "turns": Scored(value=float(sum(m.role == "assistant" for m in rollout.messages))),
        "malformed": _malformed_share(rollout),
    }


def _malformed_share(rollout: Rollout) -> Score:
    """Of an episode's calls: broken arguments or a tool that does not exist."""
    if not rollout.calls:
        return Unscored(reason="no call was made")
    bad = sum(call.result.status in _MALFORMED for call in rollout.calls)
    return Scored(value=bad / len(rollout.calls))


_MALFORMED = (CallStatus.MALFORMED, CallStatus.UNKNOWN_TOOL)


def classify(rollout: Rollout) -> EpisodeClass:
    """The first class that applies."""
    score = rollout.score
    if score is None:
        return EpisodeClass.INFRA
    if score.success:
        return EpisodeClass.SUCCESS
    if rollout.stop_reason != StopReason.ANSWERED:
        return EpisodeClass.UNFINISHED
    if score.answer_correct:
        return EpisodeClass.ANSWER_ONLY
    needed = score.subtasks - 1  # the final answer is the last one
    if needed and score.solved == needed:
        return EpisodeClass.WRONG_ANSWER
    if any(call.result.status in _MALFORMED for call in rollout.calls):
        return EpisodeClass.MALFORMED
    return EpisodeClass.FAILED if rollout.calls else EpisodeClass.NO_CALL


def mean_scores(episodes: Sequence[BenchEpisode]) -> dict[str, float]:
    """Plain means over what was measured, by score."""
    values: dict[str, list[float]] = {}
    for episode in episodes:
        for name, score in episode.scores.items():
            if isinstance(score, Scored):
                values.setdefault(name, []).append(score.value)
    return {name: sum(found) / len(found) for name, found in values.items()}


def examples(episodes: Iterable[BenchEpisode], per_class: int) -> Iterator[BenchEpisode]:
    """The first episodes of each class, in arena order."""
    shown: Counter[EpisodeClass] = Counter()
    for episode in episodes:
        if shown[episode.outcome] < per_class:
            shown[episode.outcome] += 1
            yield episode


def _check_ceiling(episodes: Sequence[BenchEpisode]) -> None:
    failed = [e for e in episodes if e.outcome not in (EpisodeClass.SUCCESS, EpisodeClass.INFRA)]
    if len(failed) > (1 - CEILING_SUCCESS) * len(episodes):
        shown = ", ".join(f"{e.arena_id} ({e.outcome}, {e.stop_reason})" for e in failed[:5])
        raise BenchError(
            f"the gold calls fail in {len(failed)} of {len(episodes)} arenas: {shown}; the limits "
            "in conf/bench are too tight for them, or envs_merged must be rebuilt"
        )
