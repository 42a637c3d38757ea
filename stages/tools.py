"""Stage tools: collect, normalise and filter tool servers (ASTRA section 3.1)."""

import asyncio
from pathlib import Path

from astra.records.tool import ToolServer
from astra.settings import RuntimeConfig, load
from astra.stage import run_stage
from astra.store.metrics import StageMetrics
from astra.store.tables import write_records
from astra.toolbank.collect import collect_servers
from astra.toolbank.config import ToolsConfig
from astra.toolbank.outage import check_live


def main() -> None:
    config = load("tools", ToolsConfig)
    runtime = load("runtime", RuntimeConfig)
    metrics = StageMetrics("tools")
    servers = asyncio.run(collect_servers(config, runtime, metrics))
    check_live(config, metrics)
    write_records(Path("data/tools.parquet"), servers, ToolServer)
    metrics.write()


if __name__ == "__main__":
    run_stage("tools", main)
