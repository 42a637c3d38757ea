"""Stage trajectories: tasks executed on real servers and emulators (ASTRA section 3.3)."""

from astra.agent.mcp import ServerEnvironments
from astra.data_stage import data_stage
from astra.estimate.plans import tasks_of
from astra.estimate.servers import servers_of
from astra.records.task import Task
from astra.records.tool import ToolServer
from astra.records.trajectory import Trajectory
from astra.sandbox.servers import build_walls
from astra.stage import run_stage
from astra.store.journal import Journal
from astra.tracking.mlflow import digests
from astra.trajectories.agenda import Agenda
from astra.trajectories.config import TrajectoriesConfig
from astra.trajectories.conversation import Scripts
from astra.trajectories.estimate import episode_asks
from astra.trajectories.live import server_pool
from astra.trajectories.offline.expert import ScriptedExpert
from astra.trajectories.offline.handlers import HANDLERS
from astra.trajectories.report import Report
from astra.trajectories.trajectories import (
    Cast,
    EpisodePlayer,
    agent,
    refuse_rule_emulator,
    trajectories,
)


def main() -> None:
    with data_stage("trajectories", TrajectoriesConfig) as stage:
        config = stage.config
        stage.expect(
            lambda: episode_asks(
                config, tasks_of(stage.table("tasks")), servers_of(stage.table("tools"))
            )
        )
        stage.follow("episodes", stage.count("tasks") * config.samples)
        servers = stage.shelf("tools", ToolServer, lambda server: server.id)
        agenda = stage.enter(Agenda(stage.read("tasks", Task), servers))
        refuse_rule_emulator(config, agenda)
        cast = Cast(
            agent(config.agent, stage.policy, ScriptedExpert),
            stage.teacher(config.emulator, HANDLERS),
            stage.teacher(config.user, HANDLERS),
        )
        walls = build_walls(stage.runtime)
        read = digests(stage.table("tasks"), stage.table("tools"))
        stage.track(read).tags(live_servers=stage.runtime.live_servers)
        player = EpisodePlayer(
            config,
            servers.one,
            Scripts(agenda, servers.one, config),
            cast,
            server_pool(ServerEnvironments(), walls, stage.runtime, config.reset_in_place),
            stage.enter(Journal("trajectories")),
        )
        outcomes = trajectories(agenda, player, stage.open_items, stage.metrics)
        written = stage.write(outcomes, Trajectory, Report(agenda).measure)
        stage.metrics.count("trajectories", written)


if __name__ == "__main__":
    run_stage("trajectories", main)
