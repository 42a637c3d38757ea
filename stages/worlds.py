"""Stage worlds: persistent domain worlds with tables, tools and rules, each of them proved."""

from astra.contamination.index import load_index
from astra.data_stage import data_stage
from astra.records.world import World
from astra.sandbox.build import build_sandbox
from astra.stage import run_stage
from astra.worlds.config import WorldsConfig
from astra.worlds.estimate import world_asks
from astra.worlds.plans import plans
from astra.worlds.report import measure
from astra.worlds.worlds import WorldTeachers, worlds


def main() -> None:
    with data_stage("worlds", WorldsConfig) as stage:
        config = stage.config
        stage.expect(lambda: world_asks(config))
        planned = [*plans(config), *config.services, *config.subjects]
        stage.follow("planned", len(planned), "worlds")
        # Rules write no worlds of subjects: there is nothing for them to answer.
        teachers = WorldTeachers(stage.teacher(config.teacher, {}), stage.teacher(config.judge, {}))
        index = load_index(config.contamination)
        sandbox = stage.enter(build_sandbox(config.sandbox, stage.runtime))
        stage.track({}).tags(sandbox_tier=sandbox.tier)
        outcomes = worlds(
            planned, teachers, sandbox, config, index, stage.open_items, stage.metrics
        )
        stage.write(outcomes, World, measure)


if __name__ == "__main__":
    run_stage("worlds", main)
