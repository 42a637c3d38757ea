"""Stage graph: weighted tool graphs from proposed chains (ASTRA section 3.1)."""

from astra.data_stage import data_stage
from astra.estimate.servers import servers_of
from astra.records.graph import ToolGraph
from astra.records.tool import ToolServer
from astra.stage import run_stage
from astra.toolgraph.config import GraphConfig
from astra.toolgraph.estimate import proposal_asks
from astra.toolgraph.graph import graphs, measure
from astra.toolgraph.offline.handlers import HANDLERS


def main() -> None:
    with data_stage("graph", GraphConfig) as stage:
        stage.expect(lambda: proposal_asks(stage.config, servers_of(stage.table("tools"))))
        stage.follow("servers", stage.count("tools"))
        servers = stage.read("tools", ToolServer)
        teacher = stage.teacher(stage.config.teacher, HANDLERS)
        outcomes = graphs(servers, teacher, stage.config, stage.open_items, stage.metrics)
        stage.write(outcomes, ToolGraph, measure)


if __name__ == "__main__":
    run_stage("graph", main)
