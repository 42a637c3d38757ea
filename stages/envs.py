"""Stage envs: a verified executable tool for each sub-question that needs one."""

from functools import partial

from astra.data_stage import data_stage
from astra.envsynth.envs import count_nodes, environments, measure, summarise
from astra.envsynth.envs_config import EnvsConfig
from astra.envsynth.estimate import environment_asks
from astra.envsynth.offline.handlers import HANDLERS
from astra.estimate.questions import questions_of
from astra.records.environment import Environment
from astra.records.qa import QAInstance
from astra.sandbox.build import build_sandbox
from astra.stage import run_stage
from astra.tracking.mlflow import digests


def main() -> None:
    with data_stage("envs", EnvsConfig) as stage:
        stage.expect(lambda: environment_asks(stage.config, questions_of(stage.table("qa_valid"))))
        instances = partial(stage.read, "qa_valid", QAInstance)
        stage.follow("needing_tool", count_nodes(instances(), stage.config.nodes), "sub-questions")
        teacher = stage.teacher(stage.config.teacher, HANDLERS)
        sandbox = stage.enter(build_sandbox(stage.config.sandbox, stage.runtime))
        stage.track(digests(stage.table("qa_valid"))).tags(sandbox_tier=sandbox.tier)
        outcomes = environments(
            instances(), teacher, sandbox, stage.config, stage.open_items, stage.metrics
        )
        stage.write(outcomes, Environment, measure)
        summarise(stage.metrics)


if __name__ == "__main__":
    run_stage("envs", main)
