"""Stage goals: what users want of the worlds, each goal proved and its checker tried."""

from astra.data_stage import data_stage
from astra.records.environment import Arena
from astra.records.world import World
from astra.sandbox.build import build_sandbox
from astra.stage import run_stage
from astra.tracking.mlflow import digests
from astra.worlds.goal_config import GoalsConfig
from astra.worlds.goal_estimate import wording_asks
from astra.worlds.goal_plans import world_plans
from astra.worlds.goal_stage import goal_arenas, measure
from astra.worlds.offline.handlers import HANDLERS


def main() -> None:
    with data_stage("goals", GoalsConfig) as stage:
        stage.expect(lambda: wording_asks(stage.config))
        planned = list(world_plans(list(stage.read("worlds", World)), stage.config))
        stage.follow("in", sum(len(plan.goals) for plan in planned), "goals")
        sandbox = stage.enter(build_sandbox(stage.config.sandbox, stage.runtime))
        stage.track(digests(stage.table("worlds"))).tags(sandbox_tier=sandbox.tier)
        teacher = stage.teacher(stage.config.teacher, HANDLERS)
        outcomes = goal_arenas(
            planned, teacher, sandbox, stage.config, stage.open_items, stage.metrics
        )
        stage.write(outcomes, Arena, measure)


if __name__ == "__main__":
    run_stage("goals", main)
