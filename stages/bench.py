"""Stage bench: base, SFT and RL checkpoints on held-out arenas and suites (ASTRA section 6)."""

from pathlib import Path

from astra.arena.world_table import read_arenas
from astra.bench.arena_overlap import shared_with_suites
from astra.bench.arenas import select
from astra.bench.bench import check_suites, run_arenas, run_suites
from astra.bench.config import BenchConfig
from astra.bench.llm_user import LlmUsers
from astra.bench.report import report_bench
from astra.bench.suite_tables import read_runs
from astra.bench.summary import suites_document
from astra.records.bench import BenchEpisode
from astra.records.environment import Arena
from astra.stage import open_stage, run_stage
from astra.store.tables import read_records, write_records

ARENAS, EPISODES = Path("data/envs_merged.parquet"), Path("data/bench.parquet")
SUITES = Path("data/suites")
TRAINED = {"sft": Path("models/sft"), "rl": Path("models/rl")}


def main() -> None:
    with open_stage("bench", BenchConfig) as stage:
        config, runtime = stage.config, stage.runtime
        check_suites(config.suites)  # before the arenas: they take long
        arenas = select(read_arenas(ARENAS), config)
        users = None
        if config.user is not None:
            users = stage.enter(LlmUsers(config.user, runtime))
        episodes = run_arenas(config, runtime, arenas, ARENAS, TRAINED, users)
        write_records(EPISODES, episodes, BenchEpisode)
        run_suites(config, runtime, TRAINED, SUITES)
        suites = suites_document(
            read_runs(SUITES), config.resamples, config.confidence, config.seed
        )
        shared = shared_with_suites(read_records(ARENAS, Arena), config.contamination)
        rates = users.rates if users else {}
        report_bench(stage.metrics, episodes, config, shared, suites, rates)


if __name__ == "__main__":
    run_stage("bench", main)
