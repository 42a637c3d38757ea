"""Stage tools: collect, normalise and filter tool servers (ASTRA section 3.1)."""

from collections.abc import AsyncIterator
from pathlib import Path

from astra.llm.build import build_teacher
from astra.records.tool import ToolServer
from astra.settings import RuntimeConfig, load
from astra.stage import blocking, run_stage
from astra.store.metrics import StageMetrics
from astra.store.tables import write_records
from astra.toolbank.collect import collect_servers
from astra.toolbank.config import ToolsConfig
from astra.toolbank.offline import HANDLERS
from astra.toolbank.outage import check_live


async def build(metrics: StageMetrics) -> AsyncIterator[ToolServer]:
    config = load("tools", ToolsConfig)
    runtime = load("runtime", RuntimeConfig)
    asked = config.domains.by == "teacher"
    teacher = build_teacher(config.teacher, runtime, HANDLERS, "tools") if asked else None
    try:
        async for server in collect_servers(config, runtime, metrics, teacher):
            yield server
    finally:
        if teacher is not None:
            await teacher.close()
    check_live(config, metrics)


def main() -> None:
    metrics = StageMetrics("tools")
    write_records(Path("data/tools.parquet"), blocking(build(metrics)), ToolServer)
    metrics.write()


if __name__ == "__main__":
    run_stage("tools", main)
