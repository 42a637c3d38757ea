"""Stage chains: sampled tool chains that pass both checks (ASTRA section 3.1)."""

from astra.data_stage import data_stage
from astra.estimate.asks import counted
from astra.estimate.servers import servers_of
from astra.records.graph import Chain, ToolGraph
from astra.records.tool import ToolServer
from astra.records.verdict import ChainVerdict
from astra.stage import run_stage
from astra.toolgraph.chains import chains, measure
from astra.toolgraph.config import ChainsConfig
from astra.toolgraph.estimate import judging_asks
from astra.toolgraph.judging import build_operators
from astra.toolgraph.offline.handlers import HANDLERS


def main() -> None:
    with data_stage("chains", ChainsConfig) as stage:
        stage.expect(
            lambda: judging_asks(
                stage.config, counted(stage.count("graph")), servers_of(stage.table("tools"))
            )
        )
        stage.follow("graphs", stage.count("graph"))
        graphs = stage.read("graph", ToolGraph)
        servers = stage.shelf("tools", ToolServer, lambda server: server.id)
        operators = build_operators(
            stage.config.operators, lambda models: stage.panel(models, HANDLERS)
        )
        outcomes = chains(
            graphs, servers.one, operators, stage.config, stage.open_items, stage.metrics
        )
        stage.write(outcomes, Chain, measure, beside={"chain_verdicts": ChainVerdict})


if __name__ == "__main__":
    run_stage("chains", main)
