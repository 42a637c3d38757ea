"""Stage chains: sampled tool chains that pass both checks (ASTRA section 3.1)."""

import asyncio
from itertools import chain
from pathlib import Path

from astra.llm.build import build_teacher, build_teachers
from astra.records.graph import Chain, ToolGraph
from astra.records.tool import ToolServer
from astra.records.verdict import ChainVerdict
from astra.settings import RuntimeConfig, load
from astra.stage import Progress, run_stage
from astra.store.metrics import StageMetrics
from astra.store.tables import count_records, read_records, write_records
from astra.toolgraph.chains import Judges, judged_chains
from astra.toolgraph.config import ChainsConfig
from astra.toolgraph.offline import HANDLERS
from astra.toolgraph.operators import build_operator

GRAPH = Path("data/graph.parquet")


async def build(metrics: StageMetrics) -> None:
    config = load("chains", ChainsConfig)
    runtime = load("runtime", RuntimeConfig)
    servers = {s.id: s for s in read_records(Path("data/tools.parquet"), ToolServer)}
    progress = Progress("graphs", count_records(GRAPH), metrics.dropped)
    graphs = progress.drawn(read_records(GRAPH, ToolGraph))
    back = config.back_translation
    asked = [
        [build_teacher(model, runtime, HANDLERS, "chains") for model in one.models]
        for one in config.operators
    ]
    judges = Judges(
        build_teachers(config.vote.sampled(), runtime, HANDLERS, "chains"),
        build_teachers(back.sampled(), runtime, HANDLERS, "chains") if back else [],
        [build_operator(one, models) for one, models in zip(config.operators, asked, strict=True)],
    )
    try:
        found = judged_chains(graphs, servers, judges, config, runtime.concurrency, metrics)
        judged = [item async for item in found]
    finally:
        for model in (*judges.vote, *judges.back_translation, *chain(*asked)):
            await model.close()
    progress.close()
    write_records(Path("data/chain_verdicts.parquet"), (i.verdict for i in judged), ChainVerdict)
    write_records(Path("data/chains.parquet"), (i.chain for i in judged if i.chain), Chain)


def main() -> None:
    metrics = StageMetrics("chains")
    asyncio.run(build(metrics))
    metrics.write()


if __name__ == "__main__":
    run_stage("chains", main)
