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
from astra.stage import run_stage
from astra.store.metrics import StageMetrics
from astra.store.tables import read_records, write_records


def main() -> None:
    config = load("envs", EnvsConfig)
    runtime = load("runtime", RuntimeConfig)
    metrics = StageMetrics("envs")
    instances = read_records(Path("data/qa_valid.parquet"), QAInstance)
    teacher = build_teacher(config.teacher, runtime, HANDLERS, "envs")
    with build_sandbox(config.sandbox, runtime) as sandbox:
        made = asyncio.run(
            run_envs(instances, teacher, sandbox, config, runtime.concurrency, metrics)
        )
    write_records(Path("data/envs.parquet"), made, Environment)
    metrics.write()


if __name__ == "__main__":
    run_stage("envs", main)
