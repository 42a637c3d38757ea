"""Stage tools: collect, normalise and filter tool servers (ASTRA section 3.1)."""

from pathlib import Path

from astra.data_stage import data_stage
from astra.records.tool import ToolServer
from astra.sandbox.servers import build_walls
from astra.stage import run_stage
from astra.toolbank.config import ToolsConfig
from astra.toolbank.connectors import Connectors
from astra.toolbank.corpora import require_corpora
from astra.toolbank.estimate import expected_servers, tool_asks
from astra.toolbank.offline.handlers import HANDLERS
from astra.toolbank.outage import unless_down
from astra.toolbank.sources import load_sources
from astra.toolbank.tools import measure, servers
from astra.tracking.mlflow import digests


def main() -> None:
    with data_stage("tools", ToolsConfig) as stage:
        config = stage.config
        paths = [Path(path) for path in config.sources]
        lists = [load_sources(path) for path in paths]
        require_corpora(lists)
        stage.expect(lambda: tool_asks(config, expected_servers(lists, config)))
        progress = stage.progress("sources", sum(sources.total for sources in lists))
        teacher = stage.teacher(config.teacher, HANDLERS) if config.asking else None
        connectors = Connectors(stage.runtime, build_walls(stage.runtime))
        stage.track(digests(*paths)).tags(live_servers=stage.runtime.live_servers)
        outcomes = servers(
            lists, connectors, teacher, config, stage.open_items, stage.metrics, progress
        )
        stage.write(unless_down(outcomes, config, stage.metrics), ToolServer, measure)


if __name__ == "__main__":
    run_stage("tools", main)
