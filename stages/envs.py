"""Stage envs: a verified executable tool for each sub-question that needs one."""

import asyncio
from pathlib import Path

from astra.envsynth.config import EnvsConfig
from astra.envsynth.offline import HANDLERS
from astra.envsynth.run import run_envs
from astra.llm.build import build_teacher
from astra.records.environment import Environment
from astra.records.qa import QAInstance
from astra.sandbox.build import build_sandbox
from astra.settings import RuntimeConfig, load
from astra.stage import follow, run_stage
from astra.store.metrics import StageMetrics
from astra.store.tables import count_records, read_records, write_records
from astra.tracking.mlflow import digests, track

QUESTIONS = Path("data/qa_valid.parquet")


def main() -> None:
    config = load("envs", EnvsConfig)
    runtime = load("runtime", RuntimeConfig)
    metrics = StageMetrics("envs")
    instances = read_records(QUESTIONS, QAInstance)
    progress = follow(metrics, "instances", count_records(QUESTIONS))
    teacher = build_teacher(config.teacher, runtime, HANDLERS, "envs")
    with (
        build_sandbox(config.sandbox, runtime) as sandbox,
        track("envs", config, digests(QUESTIONS), runtime) as run,
    ):
        run.tags(sandbox_tier=sandbox.tier)
        made = asyncio.run(
            run_envs(instances, teacher, sandbox, config, runtime.concurrency, metrics)
        )
    progress.close()
    write_records(Path("data/envs.parquet"), made, Environment)
    metrics.write()


if __name__ == "__main__":
    run_stage("envs", main)
