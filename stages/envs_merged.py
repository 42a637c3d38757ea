"""Stage envs_merged: arenas with merged, replayed tools and irrelevant-tool candidates."""

import asyncio
from pathlib import Path

from astra.embedding.build import build_embedder
from astra.envsynth.config import EnvsMergedConfig
from astra.envsynth.offline import HANDLERS
from astra.envsynth.run import Inputs, run_envs_merged
from astra.llm.build import build_teacher
from astra.records.environment import Arena
from astra.sandbox.build import build_sandbox
from astra.settings import RuntimeConfig, load
from astra.stage import Progress, run_stage
from astra.store.metrics import StageMetrics
from astra.store.tables import count_records, write_records
from astra.tracking.mlflow import digests, track

DATA = Path("data")


def main() -> None:
    config = load("envs_merged", EnvsMergedConfig)
    runtime = load("runtime", RuntimeConfig)
    metrics = StageMetrics("envs_merged")
    progress = Progress("instances", count_records(Inputs.files(DATA)[0]))
    teacher = build_teacher(config.teacher, runtime, HANDLERS, "envs_merged")
    embedder = build_embedder(config.embedding, runtime)
    with (
        build_sandbox(config.sandbox, runtime) as sandbox,
        track("envs_merged", config, digests(*Inputs.files(DATA)), runtime) as run,
    ):
        run.tags(sandbox_tier=sandbox.tier)
        work = run_envs_merged(
            Inputs.at(DATA), teacher, embedder, sandbox, config, runtime.concurrency, metrics,
            progress,
        )  # fmt: skip
        arenas = asyncio.run(work)
    progress.close()
    write_records(DATA / "envs_merged.parquet", arenas, Arena)
    metrics.write()


if __name__ == "__main__":
    run_stage("envs_merged", main)
