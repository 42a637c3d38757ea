"""Stage tasks: written, augmented, scored and selected user tasks (ASTRA section 3.2)."""

import asyncio
from pathlib import Path

from astra.llm.build import build_teacher
from astra.records.graph import Chain
from astra.records.task import Task
from astra.records.tool import ToolServer
from astra.settings import RuntimeConfig, load
from astra.stage import Progress, run_stage
from astra.store.metrics import StageMetrics
from astra.store.tables import read_records, write_records
from astra.tasking.build import TaskBuilder
from astra.tasking.config import TasksConfig
from astra.tasking.offline import HANDLERS


async def build(metrics: StageMetrics) -> None:
    config = load("tasks", TasksConfig)
    runtime = load("runtime", RuntimeConfig)
    servers = list(read_records(Path("data/tools.parquet"), ToolServer))
    place = {server.id: number for number, server in enumerate(servers)}
    chains: dict[str, list[Chain]] = {}
    for chain in read_records(Path("data/chains.parquet"), Chain):
        chains.setdefault(chain.server_id, []).append(chain)
    teacher = build_teacher(config.teacher, runtime, HANDLERS, "tasks")
    judge = build_teacher(config.judge, runtime, HANDLERS, "tasks")
    progress, tasks = Progress("servers", len(servers), metrics.dropped), list[Task]()
    try:
        builder = TaskBuilder(teacher, judge, config, runtime.concurrency, metrics)
        async for task in builder.build(servers, chains):
            tasks.append(task)
            progress.reach(place[task.server_id])
    finally:
        await teacher.close()
        await judge.close()
    progress.reach(len(servers))
    progress.close()
    write_records(Path("data/tasks.parquet"), tasks, Task)


def main() -> None:
    metrics = StageMetrics("tasks")
    asyncio.run(build(metrics))
    metrics.write()


if __name__ == "__main__":
    run_stage("tasks", main)
