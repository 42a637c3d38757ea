"""Stage graph: weighted tool graphs from proposed chains (ASTRA section 3.1)."""

import asyncio
from pathlib import Path

from astra.llm.build import build_teacher
from astra.records.graph import ToolGraph
from astra.records.tool import ToolServer
from astra.settings import RuntimeConfig, load
from astra.stage import follow, run_stage
from astra.store.metrics import StageMetrics
from astra.store.tables import count_records, read_records, write_records
from astra.toolgraph.config import GraphConfig
from astra.toolgraph.graphs import build_graphs
from astra.toolgraph.offline import HANDLERS

TOOLS = Path("data/tools.parquet")


async def build(metrics: StageMetrics) -> None:
    config = load("graph", GraphConfig)
    runtime = load("runtime", RuntimeConfig)
    servers = read_records(TOOLS, ToolServer)
    teacher = build_teacher(config.teacher, runtime, HANDLERS, "graph")
    progress = follow(metrics, "servers", count_records(TOOLS))
    try:
        found = build_graphs(servers, teacher, config, runtime.concurrency, metrics)
        graphs = [graph async for graph in found]
    finally:
        await teacher.close()
    progress.close()
    write_records(Path("data/graph.parquet"), graphs, ToolGraph)


def main() -> None:
    metrics = StageMetrics("graph")
    asyncio.run(build(metrics))
    metrics.write()


if __name__ == "__main__":
    run_stage("graph", main)
