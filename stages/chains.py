"""Stage chains: sampled tool chains that pass both checks (ASTRA section 3.1)."""

import asyncio
from pathlib import Path

from astra.llm.build import build_teacher
from astra.records.graph import Chain, ToolGraph
from astra.records.tool import ToolServer
from astra.settings import RuntimeConfig, load
from astra.stage import Progress, run_stage
from astra.store.metrics import StageMetrics
from astra.store.tables import count_records, read_records, write_records
from astra.toolgraph.chains import accepted_chains
from astra.toolgraph.config import ChainsConfig
from astra.toolgraph.offline import HANDLERS

GRAPH = Path("data/graph.parquet")


async def build(metrics: StageMetrics) -> None:
    config = load("chains", ChainsConfig)
    runtime = load("runtime", RuntimeConfig)
    servers = {s.id: s for s in read_records(Path("data/tools.parquet"), ToolServer)}
    progress = Progress("graphs", count_records(GRAPH), metrics.dropped)
    graphs = progress.drawn(read_records(GRAPH, ToolGraph))
    judge = build_teacher(config.judge, runtime, HANDLERS, "chains")
    try:
        found = accepted_chains(graphs, servers, judge, config, runtime.concurrency, metrics)
        chains = [chain async for chain in found]
    finally:
        await judge.close()
    progress.close()
    write_records(Path("data/chains.parquet"), chains, Chain)


def main() -> None:
    metrics = StageMetrics("chains")
    asyncio.run(build(metrics))
    metrics.write()


if __name__ == "__main__":
    run_stage("chains", main)
