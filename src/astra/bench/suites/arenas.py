"""Our held-out arenas over an endpoint: loop, sandbox, checker (arena/reward.py) of training.

With irrelevant tools (``irrelevant_tools: banded``) and without (``none``) are two entries of
``bench.suites``, told apart by their labels. The headline is the paper's F1; ``success`` is what
pass^k counts. Both are also told for look-ups and hard arenas apart (``f1_hard``). Token limits
hold as in training: a turn, prompt or conversation that exceeds them ends its episode.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from astra.arena.irrelevant import IrrelevantMode
from astra.arena.world_table import read_arenas
from astra.bench.arenas import BenchError, job_of
from astra.bench.endpoint_episode import EndpointEpisode
from astra.bench.episodes import rollout_scores
from astra.bench.harness.client import ChatClient, play_jobs, sampling
from astra.bench.harness.project import PlayRequest, project_driver
from astra.bench.harness.protocol import (
    DriverProcess,
    Entry,
    Job,
    Listing,
    Played,
    Suite,
    SuiteConfig,
    SuiteError,
)
from astra.records.base import content_id
from astra.records.bench import SuiteOutcome
from astra.records.environment import Arena
from astra.records.qa import Split
from astra.records.score import Unscored
from astra.records.trajectory import StopReason
from astra.rollout.live import PAPER_LIMITS, Rollout, RolloutLimits
from astra.sandbox.build import build_sandbox
from astra.sandbox.limits import SandboxLimits
from astra.settings import RuntimeConfig, StageConfig
from astra.store.tables import read_records


class Options(StageConfig):
    table: str = "data/envs_merged.parquet"
    irrelevant_tools: IrrelevantMode = IrrelevantMode.BANDED
    irrelevant_per_band: int = Field(default=1, ge=0)
    seed: int = 0
    """The seed of the draw of irrelevant tools."""
    limits: RolloutLimits = PAPER_LIMITS
    sandbox: SandboxLimits = SandboxLimits()
    sandbox_min_tier: str = "B"
    sandbox_workers: int = Field(default=1, ge=1)

    @field_validator("limits", mode="before")
    @classmethod
    def _rest_is_the_papers(cls, limits: Any) -> Any:
        """Limits that the options leave out are those of the paper."""
        return {**PAPER_LIMITS.model_dump(), **limits} if isinstance(limits, dict) else limits


def driver(options: Options) -> DriverProcess:
    return project_driver("arenas")


SUITE = Suite(name="arenas", score="f1", driver=driver)


def entries(config: SuiteConfig) -> Listing:
    """The held-out arenas, by scenario."""
    arenas = _held_out(Options.model_validate(config.options))
    return Listing(
        entries=tuple(Entry(id=arena.id, category=arena.scenario.value) for arena in arenas),
        # Whole arenas: their ids leave out the irrelevant tools, which decide an episode as well.
        versions={"arenas": content_id([arena.model_dump(mode="json") for arena in arenas])},
    )


def play(request: PlayRequest) -> Iterator[Played]:
    """Every job's attempt as it ends. An arena keeps its irrelevant tools in all attempts."""
    options = Options.model_validate(request.config.options)
    wanted = {job.entry_id for job in request.jobs}
    arenas = {arena.id: arena for arena in read_arenas(Path(options.table)) if arena.id in wanted}
    runtime = RuntimeConfig(
        sandbox_min_tier=options.sandbox_min_tier, sandbox_workers=options.sandbox_workers
    )
    with (
        closing(ChatClient(request.endpoints["model"])) as client,
        build_sandbox(options.sandbox, runtime) as sandbox,
    ):

        def attempt(job: Job) -> Played:
            drawn = job_of(
                arenas[job.entry_id], options.irrelevant_tools, options.irrelevant_per_band,
                options.seed,
            )  # fmt: skip
            fields = sampling(request.config.decoding, job)
            episode = EndpointEpisode(drawn, client, options.limits, fields)
            return _played(job, episode, episode.play(sandbox))

        yield from play_jobs(request.jobs, request.config.concurrency, attempt)


def _held_out(options: Options) -> list[Arena]:
    table = Path(options.table)
    if not table.is_file():
        raise SuiteError(f"{table} not found; build it with `dvc repro envs_merged`")
    arenas = [arena for arena in read_records(table, Arena) if arena.split == Split.HELDOUT]
    if not arenas:
        raise BenchError(f"{table} has no held-out arena")
    return sorted(arenas, key=lambda arena: arena.id)


def _played(job: Job, episode: EndpointEpisode, rollout: Rollout) -> Played:
    """An episode as the suite scores it."""
    stop = rollout.stop_reason
    outcome = SuiteOutcome.OVERFLOW if episode.overflow else SuiteOutcome.SCORED
    if stop == StopReason.INFRA:
        outcome = SuiteOutcome.INFRA
    scores = rollout_scores(rollout)
    solved = rollout.score is not None and rollout.score.success
    if "f1_plain" in scores:
        # The headline is the paper's F1; where no sub-task needs a tool, the answer decides.
        combined, plain = scores["f1"], scores.pop("f1_plain")
        scores["f1"] = combined if isinstance(plain, Unscored) else plain
        scores["f1_with_answer"] = combined
    # Look-ups and hard arenas apart: a mean is over the entries that have the score.
    part = rollout.arena.difficulty
    scores |= {f"{name}_{part}": scores[name] for name in ("f1", "success") if name in scores}
    reason = (episode.overflow or rollout.problem)[:600] or ("" if solved else f"ended: {stop}")
    return Played(
        entry_id=job.entry_id, attempt=job.attempt, outcome=outcome, scores=scores, reason=reason,
        steps=episode.steps, prompt_tokens=episode.prompt_tokens,
        completion_tokens=episode.completion_tokens, messages=rollout.messages,
    )  # fmt: skip
