"""What the two stages do, between reading and writing records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from astra.embedding.protocol import Embedder
from astra.envsynth.bands import ToolPool, with_irrelevant
from astra.envsynth.build import build_arenas, group_environments, histograms
from astra.envsynth.config import EnvsConfig, EnvsMergedConfig
from astra.envsynth.splits import SplitGuard
from astra.envsynth.synthesise import synthesise
from astra.llm.protocol import Teacher
from astra.records.environment import Arena, Environment
from astra.records.qa import QAInstance
from astra.records.score import Rejection
from astra.records.tool import ToolServer
from astra.sandbox.protocol import Sandbox
from astra.stage import Progress
from astra.store.metrics import StageMetrics
from astra.store.tables import read_records


async def run_envs(
    instances: Iterable[QAInstance],
    teacher: Teacher,
    sandbox: Sandbox,
    config: EnvsConfig,
    concurrency: int,
    metrics: StageMetrics,
) -> list[Environment]:
    """Stage ``envs``; every sub-question that needs a tool is made or counted as dropped."""
    made: list[Environment] = []
    async for outcome in synthesise(
        _counted(instances, metrics), teacher, sandbox, config, concurrency
    ):
        metrics.count("needing_tool")
        if isinstance(outcome, Rejection):
            metrics.reject(outcome)
            continue
        made.append(outcome)
        for check, times in outcome.checks.items():
            metrics.count(f"checks_{check}", times)
        metrics.distribution("parameters", [len(outcome.tool.parameters["properties"])])
        metrics.distribution("answer_type", [outcome.answer.type.value])
    await teacher.close()
    metrics.count("environments", len(made))
    metrics.value("yield", _share(len(made), metrics.counts["needing_tool"]))
    return made


def _counted(instances: Iterable[QAInstance], metrics: StageMetrics) -> Iterator[QAInstance]:
    for instance in instances:
        metrics.count("instances")
        metrics.count("sub_questions", len(instance.sub_questions))
        yield instance


@dataclass(frozen=True)
class Inputs:
    """What ``envs_merged`` reads; callables, since instances are read twice."""

    instances: Callable[[], Iterable[QAInstance]]
    environments: Callable[[], Iterable[Environment]]
    servers: Callable[[], Iterable[ToolServer]]

    @staticmethod
    def files(folder: Path) -> tuple[Path, Path, Path]:
        """Instances, environments, servers."""
        return folder / "qa_valid.parquet", folder / "envs.parquet", folder / "tools.parquet"

    @classmethod
    def at(cls, folder: Path) -> Inputs:
        instances, environments, servers = cls.files(folder)
        return cls(
            lambda: read_records(instances, QAInstance),
            lambda: read_records(environments, Environment),
            lambda: read_records(servers, ToolServer),
        )


async def run_envs_merged(
    inputs: Inputs,
    teacher: Teacher,
    embedder: Embedder,
    sandbox: Sandbox,
    config: EnvsMergedConfig,
    concurrency: int,
    metrics: StageMetrics,
    progress: Progress,
) -> list[Arena]:
    """Stage ``envs_merged``; every instance becomes an arena or is counted as dropped.

    ``progress`` counts instances.
    """
    guard = SplitGuard(inputs.instances())
    arenas, rejections, counts = await build_arenas(
        inputs.instances(),
        guard,
        group_environments(inputs.environments()),
        teacher,
        sandbox,
        config,
        concurrency,
        progress,
    )
    await teacher.close()
    for rejection in rejections:
        metrics.reject(rejection)
    for name, times in counts.items():
        metrics.count(name, times)
    pool = ToolPool(arenas, inputs.servers())
    finished = list(with_irrelevant(arenas, pool, embedder, config.per_band))
    metrics.count("instances", len(arenas) + len(rejections))
    metrics.count("arenas", len(finished))
    metrics.value("yield", _share(len(finished), len(arenas) + len(rejections)))
    metrics.value("embedder", embedder.name)
    for name, items in histograms(finished):
        metrics.distribution(name, items)
    return finished


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0
