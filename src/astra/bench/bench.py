"""The two halves of stage ``bench``: every checkpoint in the arenas, and on the external suites.

The arenas are played from this process: by a model that it loads or, with serving engine ``vllm``
and where ``bench.endpoints`` names the checkpoint, against a server. A suite is played by a process
of its own, always against a server.
"""

from __future__ import annotations

import gc
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from pathlib import Path

from astra.arena.world_table import tables_of
from astra.bench.arenas import check_ceiling, job_of, play_jobs
from astra.bench.checkpoints import prompting
from astra.bench.config import BenchConfig
from astra.bench.episodes import examples, mean_scores
from astra.bench.harness.play import checked, run_suite
from astra.bench.harness.protocol import Serving, SuiteConfig, SuiteError
from astra.bench.harness.served import Checkpoints
from astra.bench.llm_user import LlmUsers
from astra.bench.names import CEILING, REFERENCES, WORLD_FLOORS
from astra.bench.progress import BenchProgress
from astra.bench.references import reference_scripts, scripted_engine
from astra.bench.served_arenas import play_served
from astra.bench.suite_tables import write_run
from astra.bench.summary import run_metrics
from astra.records.bench import BenchEpisode, SuiteRun
from astra.records.environment import Arena
from astra.rollout.chat import LoadedPolicy, PolicyConfig, load_codec, load_policy
from astra.rollout.device import prepare_torch
from astra.rollout.engine import Engine
from astra.rollout.live import EpisodeJob
from astra.sandbox.build import build_sandbox
from astra.sandbox.protocol import Sandbox
from astra.settings import RuntimeConfig
from astra.tracking.mlflow import Run, digests, track

log = logging.getLogger(__name__)
Tracked = Callable[[str], AbstractContextManager[Run]]
"""Opens the MLflow run that a checkpoint's suites are logged to."""


def run_arenas(
    config: BenchConfig,
    runtime: RuntimeConfig,
    arenas: Sequence[Arena],
    table: Path,
    trained: Mapping[str, Path],
    users: LlmUsers | None = None,
) -> list[BenchEpisode]:
    """Every checkpoint on the same arenas with the same irrelevant tools; references first.

    ``table`` is where the arenas were read, ``trained`` the folders of the trained checkpoints.
    ``users`` talk with the checkpoints; without them, and with the references, the goals' scripts.
    Raises BenchError when the gold calls fail or too many episodes are lost to our machinery.
    """
    jobs = [
        job_of(arena, config.irrelevant_tools, config.irrelevant_per_band, config.seed)
        for arena in arenas
    ]
    serving = Checkpoints(config, runtime, trained)
    with build_sandbox(config.sandbox, runtime) as sandbox:
        shared = _Arenas(config, runtime, jobs, table, sandbox, serving, users)
        episodes = shared.references()
        with closing(BenchProgress("episodes", len(jobs), len(serving.policies))) as progress:
            for name, policy in serving.policies.items():
                episodes += shared.checkpoint(name, policy, progress)
    return episodes


@dataclass(frozen=True)
class _Arenas:
    """What all checkpoints share when they play the arenas."""

    config: BenchConfig
    runtime: RuntimeConfig
    jobs: Sequence[EpisodeJob]
    table: Path
    sandbox: Sandbox
    serving: Checkpoints
    users: LlmUsers | None

    def references(self) -> list[BenchEpisode]:
        """What the rules play. They are counted apart from the checkpoints: they take no time,
        and so say nothing about the time left."""
        codec = load_codec(self.config.policy)
        episodes: list[BenchEpisode] = []
        names = REFERENCES
        if any(job.arena.world_id for job in self.jobs):
            names += WORLD_FLOORS
        with closing(BenchProgress("reference episodes", len(self.jobs), len(names))) as progress:
            for name in names:
                written = reference_scripts(name, self.jobs, self.sandbox)
                jobs = [job for job in self.jobs if job.arena.id in written]
                engine = scripted_engine(written, jobs, codec, self.config.engine_rows)
                episodes += play_jobs(
                    name, jobs, engine, codec, self.sandbox, self.config, progress
                )
        check_ceiling([episode for episode in episodes if episode.checkpoint == CEILING])
        return episodes

    def checkpoint(
        self, name: str, policy: PolicyConfig, progress: BenchProgress
    ) -> list[BenchEpisode]:
        """What one checkpoint plays, logged to an MLflow run of its own."""
        config, folder = self.config, Path(policy.path)
        inputs = digests(*tables_of(self.table), *([folder] if folder.is_dir() else ()))
        with track("bench", config, inputs, self.runtime, part=name) as run:
            run.tags(checkpoint=name, policy=policy.path, revision=policy.revision or "")
            run.tags(sandbox_tier=self.sandbox.tier)
            if self.serving.serves(name):
                with self.serving(name) as subject:
                    run.tags(served_model=subject.endpoint.model, **subject.prompting)
                    episodes = play_served(
                        name, self._jobs(name), subject.endpoint, self.sandbox, config, progress
                    )
            else:
                episodes = self._in_process(name, policy, progress, run)
            means = mean_scores(episodes)
            run.metrics(means, step=0)
            for episode in examples(episodes, config.examples):
                attributes = {"arena": episode.arena_id, "outcome": str(episode.outcome)}
                run.trace(f"bench-{name}", episode.messages, episode.calls, attributes)
        log.info("%s: %s", name, ", ".join(f"{key} {mean:.3f}" for key, mean in means.items()))
        return episodes

    def _jobs(self, checkpoint: str) -> list[EpisodeJob]:
        """What a checkpoint plays, with those who talk with it."""
        if self.users is None:
            return list(self.jobs)
        return [replace(job, user=self.users.user(checkpoint, job.arena)) for job in self.jobs]

    def _in_process(
        self, name: str, policy: PolicyConfig, progress: BenchProgress, run: Run
    ) -> list[BenchEpisode]:
        device = prepare_torch(self.runtime, self.config.seed)
        loaded = load_policy(policy, device)
        run.tags(torch_device=device, **prompting(loaded.codec))
        engine = _engine(loaded, self.config)
        episodes = play_jobs(
            name, self._jobs(name), engine, loaded.codec, self.sandbox, self.config, progress
        )
        del engine, loaded
        gc.collect()
        return episodes


def _engine(loaded: LoadedPolicy, config: BenchConfig) -> Engine:
    from astra.rollout.batched import BatchedEngine

    codec = loaded.codec
    return BatchedEngine(loaded.model, codec.eos_id, codec.pad_id, config.engine_rows)


def run_suites(
    config: BenchConfig, runtime: RuntimeConfig, trained: Mapping[str, Path], folder: Path
) -> list[SuiteRun]:
    """Every configured suite on every checkpoint, a model that does nothing first."""
    checkpoints = Checkpoints(config, runtime, trained)

    def tracked(checkpoint: str) -> AbstractContextManager[Run]:
        inputs = digests(trained[checkpoint]) if checkpoint in trained else {}
        return track("bench", config, inputs, runtime, part=f"{checkpoint}/suites")

    return play_suites(config.suites, checkpoints, checkpoints.names, folder, tracked)


def check_suites(suites: Sequence[SuiteConfig]) -> None:
    """Raises AstraError for what could not be played; called before the arenas are."""
    labels = [config.suite for config in suites]
    if len(set(labels)) < len(labels):
        raise SuiteError(f"bench.suites uses a label twice: {labels}; give each setting its own")
    for config in suites:
        checked(config)


def play_suites(
    suites: Sequence[SuiteConfig],
    serving: Serving,
    checkpoints: Sequence[str],
    folder: Path,
    tracked: Tracked,
) -> list[SuiteRun]:
    """Play every suite on every checkpoint and write the runs below ``folder`` (suite_tables.py).

    A checkpoint is served once for all its suites and has one run of ``tracked``. Raises
    SuiteError for the first run that fails; what the runs have finished by then is in the journal.
    """
    check_suites(suites)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    runs: list[SuiteRun] = []
    for checkpoint in checkpoints if suites else ():
        with tracked(checkpoint) as tracker, serving(checkpoint) as subject:
            tracker.tags(checkpoint=checkpoint, suites=" ".join(config.suite for config in suites))
            for config in suites:
                run, episodes = run_suite(config, subject)
                write_run(folder, run, episodes)
                tracker.metrics(run_metrics(run, episodes), step=0)
                runs.append(run)
    return runs
