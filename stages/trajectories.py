"""Stage ``trajectories``: tasks executed on real servers and emulators (ASTRA section 3.3)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from astra.agent.mcp import ServerEnvironments
from astra.records.score import Rejection
from astra.records.task import Task
from astra.records.tool import ToolServer
from astra.records.trajectory import Trajectory
from astra.settings import RuntimeConfig, load
from astra.stage import Progress, blocking, run_stage
from astra.store.metrics import StageMetrics
from astra.store.tables import count_records, read_records, write_records
from astra.trajectories.config import TrajectoriesConfig
from astra.trajectories.report import describe
from astra.trajectories.synthesis import build

TASKS = Path("data/tasks.parquet")


def main() -> None:
    config, runtime = load("trajectories", TrajectoriesConfig), load("runtime", RuntimeConfig)
    servers = {s.id: s for s in read_records(Path("data/tools.parquet"), ToolServer)}
    synthesis = build(config, runtime, servers, ServerEnvironments())
    total = count_records(TASKS) * config.samples
    metrics, progress = StageMetrics("trajectories"), Progress("episodes", total)
    metrics.count("episodes", total)

    def kept() -> Iterator[Trajectory]:
        outcomes = synthesis.run(lambda: read_records(TASKS, Task), runtime.concurrency)
        for outcome in blocking(outcomes):
            if isinstance(outcome, Rejection):
                metrics.reject(outcome)
                progress.drop(outcome.reason)
                continue
            describe(metrics, outcome)
            progress.advance()
            yield outcome

    metrics.count(
        "trajectories", write_records(Path("data/trajectories.parquet"), kept(), Trajectory)
    )
    progress.close()
    metrics.write()


if __name__ == "__main__":
    run_stage("trajectories", main)
