"""Stage envs_merged: arenas with merged, replayed tools and irrelevant-tool candidates."""

import asyncio
from pathlib import Path

from astra.embedding.build import build_embedder
from astra.envsynth.config import EnvsMergedConfig
from astra.envsynth.interpreter.build import build_code_arenas
from astra.envsynth.offline import HANDLERS
from astra.envsynth.run import Inputs, run_envs_merged
from astra.llm.build import build_teacher
from astra.records.environment import Arena
from astra.sandbox.build import build_sandbox
from astra.settings import RuntimeConfig, load
from astra.stage import run_stage
from astra.store.metrics import StageMetrics
from astra.store.tables import write_records


def main() -> None:
    config = load("envs_merged", EnvsMergedConfig)
    runtime = load("runtime", RuntimeConfig)
    metrics = StageMetrics("envs_merged")
    inputs = Inputs.at(Path("data"))
    teacher = build_teacher(config.teacher, runtime, HANDLERS, "envs_merged")
    embedder = build_embedder(config.embedding, runtime)
    with build_sandbox(config.sandbox, runtime) as sandbox:
        arenas = asyncio.run(
            run_envs_merged(
                inputs, teacher, embedder, sandbox, config, runtime.concurrency, metrics
            )
        )
        arenas += build_code_arenas(inputs.instances(), config.code, sandbox, metrics)
    write_records(Path("data/envs_merged.parquet"), arenas, Arena)
    metrics.write()


if __name__ == "__main__":
    run_stage("envs_merged", main)
