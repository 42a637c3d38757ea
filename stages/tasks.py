"""Stage tasks: written, augmented, scored and selected user tasks (ASTRA section 3.2)."""

from astra.data_stage import data_stage
from astra.estimate.plans import chains_of
from astra.estimate.servers import servers_of
from astra.records.graph import Chain
from astra.records.task import Task
from astra.records.tool import Execution, ToolServer
from astra.stage import run_stage
from astra.tasking.config import TasksConfig
from astra.tasking.estimate import task_asks
from astra.tasking.measures import measure
from astra.tasking.offline.handlers import HANDLERS
from astra.tasking.pipeline import Models
from astra.tasking.tasks import tasks


def main() -> None:
    with data_stage("tasks", TasksConfig) as stage:
        stage.expect(
            lambda: task_asks(
                stage.config, chains_of(stage.table("chains")), servers_of(stage.table("tools"))
            )
        )
        stage.follow("servers", stage.count("tools"))
        servers = stage.read("tools", ToolServer)
        live = sum(server.execution is Execution.LIVE for server in stage.read("tools", ToolServer))
        chains = stage.shelf("chains", Chain, lambda chain: chain.server_id)
        models = Models(
            teacher=stage.teacher(stage.config.teacher, HANDLERS),
            judge=stage.teacher(stage.config.judge, HANDLERS),
        )
        share = stage.config.share_written(stage.count("tools"), stage.count("chains"))
        outcomes = tasks(
            servers, chains.of, models, stage.config, live, stage.open_items, stage.metrics, share
        )
        stage.write(outcomes, Task, measure)


if __name__ == "__main__":
    run_stage("tasks", main)
