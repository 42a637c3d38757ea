"""Stage ``sft_set``: seven-dimension scores, selection, train/eval split (ASTRA section 3.4)."""

from __future__ import annotations

from pathlib import Path

from astra.llm.build import build_teacher
from astra.records.task import Task
from astra.records.trajectory import SFTSample, Trajectory
from astra.scoring.build import Statistics, samples, scored, shortlist
from astra.scoring.config import SFTSetConfig
from astra.scoring.offline import HANDLERS
from astra.scoring.select import Families
from astra.settings import RuntimeConfig, load
from astra.stage import blocking, follow, run_stage
from astra.store.metrics import StageMetrics
from astra.store.tables import count_records, read_records, write_records

TRAJECTORIES = Path("data/trajectories.parquet")


def main() -> None:
    config, runtime = load("sft_set", SFTSetConfig), load("runtime", RuntimeConfig)
    families = Families(read_records(Path("data/tasks.parquet"), Task))
    judge = build_teacher(config.judge, runtime, HANDLERS, "sft_set")
    metrics = StageMetrics("sft_set")
    progress = follow(metrics, "trajectories", count_records(TRAJECTORIES))
    pairs = scored(read_records(TRAJECTORIES, Trajectory), judge, runtime.concurrency)
    chosen = shortlist(blocking(pairs), config, metrics)
    progress.close()
    statistics = Statistics(metrics)
    rows = samples(read_records(TRAJECTORIES, Trajectory), chosen, families, config)
    write_records(Path("data/sft_set.parquet"), statistics.watch(rows), SFTSample)
    statistics.finish()
    metrics.write()


if __name__ == "__main__":
    run_stage("sft_set", main)
