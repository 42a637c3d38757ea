"""How fast stages ``envs`` and ``envs_merged`` make arenas offline, and how many they keep.

    PYTHONPATH=src python benchmarks/arenas.py [--limit N] [--twice] [--policies]

Reads data/qa_valid.parquet and data/tools.parquet, runs both stages as params.yaml configures them
in a folder of its own, and prints their metrics as one JSON object. ``--twice`` makes everything
again and compares the bytes. ``--policies`` runs the seven scripted policies over every arena
(astra.arena.scripted) and fails at the first that they misorder. CPU seconds count this process,
the sandbox and all sessions; on a shared machine they say more than wall seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import resource
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from astra.cli import arena_card
from astra.data_stage import OPEN_PER_PLACE
from astra.embedding.build import build_embedder
from astra.envsynth import envs, envs_merged
from astra.envsynth.envs_config import EnvsConfig
from astra.envsynth.envs_merged_config import EnvsMergedConfig
from astra.envsynth.offline.handlers import HANDLERS
from astra.llm.build import Teachers
from astra.records.base import Record
from astra.records.environment import Arena, Environment
from astra.records.qa import QAInstance, QuestionKind
from astra.records.score import Rejection
from astra.records.tool import ToolServer
from astra.sandbox.build import build_sandbox
from astra.settings import RuntimeConfig, load
from astra.store.metrics import StageMetrics
from astra.store.shelf import Shelf
from astra.store.tables import TableWriter, read_records

RecordType = TypeVar("RecordType", bound=Record)
DATA = Path("data")


class Clock:
    """Wall and CPU seconds, children included, of one step after the other."""

    def __init__(self) -> None:
        self.report: dict[str, dict[str, float]] = {}

    def time(self, name: str, work: Callable[[], Any]) -> Any:
        """Run ``work`` as the step ``name`` and return its result."""
        wall, cpu = time.monotonic(), _cpu()
        result = work()
        self.report[name] = {
            "wall_s": round(time.monotonic() - wall, 1),
            "cpu_s": round(_cpu() - cpu, 1),
        }
        return result


def _cpu() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def write(
    path: Path,
    outcomes: AsyncGenerator[Record, None],
    model: type[RecordType],
    metrics: StageMetrics,
    measure: Callable[[StageMetrics, RecordType], None],
) -> None:
    """Run a flow as its stage does, without a table of rejections."""

    async def drain(table: TableWriter[RecordType]) -> None:
        async with aclosing(outcomes):
            async for outcome in outcomes:
                if isinstance(outcome, Rejection):
                    metrics.reject(outcome)
                elif isinstance(outcome, model):
                    table.add(outcome)
                    measure(metrics, outcome)

    with TableWriter(path, model) as table:
        asyncio.run(drain(table))
        table.commit()


def make_envs(folder: Path, instances: Callable[[], Iterable[QAInstance]]) -> dict[str, Any]:
    """Run stage ``envs`` into the folder; its metrics."""
    config, runtime = load("envs", EnvsConfig), load("runtime", RuntimeConfig)
    metrics, open_items = StageMetrics("envs"), OPEN_PER_PLACE * runtime.concurrency
    with Teachers(runtime, "envs") as teachers, build_sandbox(config.sandbox, runtime) as sandbox:
        teacher = teachers.teacher(config.teacher, HANDLERS)
        outcomes = envs.environments(instances(), teacher, sandbox, config, open_items, metrics)
        write(folder / "envs.parquet", outcomes, Environment, metrics, envs.measure)
    envs.summarise(metrics)
    return metrics.document()


def make_arenas(folder: Path, instances: Callable[[], Iterable[QAInstance]]) -> dict[str, Any]:
    """Run stage ``envs_merged`` on the folder's ``envs``; its metrics."""
    config, runtime = load("envs_merged", EnvsMergedConfig), load("runtime", RuntimeConfig)
    metrics, open_items = StageMetrics("envs_merged"), OPEN_PER_PLACE * runtime.concurrency
    embedder = build_embedder(config.embedding, runtime)
    verified = read_records(folder / "envs.parquet", Environment)
    with (
        Teachers(runtime, "envs_merged") as teachers,
        build_sandbox(config.sandbox, runtime) as sandbox,
        Shelf(Environment, lambda environment: environment.qa_id, verified) as environments,
    ):
        inputs = envs_merged.Inputs(
            instances, environments.of, lambda: read_records(DATA / "tools.parquet", ToolServer)
        )
        teacher = teachers.teacher(config.teacher, HANDLERS)
        outcomes = envs_merged.arenas(
            inputs, teacher, embedder, sandbox, config, open_items, metrics
        )
        write(folder / "envs_merged.parquet", outcomes, Arena, metrics, envs_merged.measure)
    envs_merged.summarise(metrics, embedder)
    return metrics.document()


def digests(folder: Path) -> dict[str, str]:
    """16 hex digits of each table's bytes."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in sorted(folder.glob("*.parquet"))
    }


def policy_rewards(folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    """The mean and best reward of each scripted policy over the folder's arenas, look-ups and hard
    ones apart, code arenas left out."""
    written = read_records(folder / "envs_merged.parquet", Arena)
    arenas = [arena for arena in written if arena.kind != QuestionKind.CODE]
    limits = load("envs_merged", EnvsMergedConfig).sandbox
    with build_sandbox(limits, load("runtime", RuntimeConfig)) as sandbox:
        rewards = arena_card.policy_rewards(arenas, sandbox)
    return {
        difficulty: {
            policy.value: {"mean": round(statistics.fmean(paid), 4), "best": round(max(paid), 4)}
            for policy, paid in of_policies.items()
            if paid
        }
        for difficulty, of_policies in rewards.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=None, help="questions to use")
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--policies", action="store_true")
    options = parser.parse_args()

    def instances() -> Iterable[QAInstance]:
        return islice(read_records(DATA / "qa_valid.parquet", QAInstance), options.limit)

    clock, report, seen = Clock(), dict[str, Any](), list[dict[str, str]]()
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(2 if options.twice else 1):
            folder = Path(scratch) / str(number)
            for stage, make in (("envs", make_envs), ("envs_merged", make_arenas)):
                label = f"{stage} again" if number else stage
                report[stage] = clock.time(label, partial(make, folder, instances))
            seen.append(digests(folder))
        if options.policies:
            report["policies"] = clock.time(
                "policies", partial(policy_rewards, Path(scratch) / "0")
            )
    report |= {"seconds": clock.report, "load": os.getloadavg()[0]}
    if options.twice:
        report["identical"] = seen[0] == seen[1]
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
