"""Stage envs_merged: arenas with merged, replayed tools and irrelevant-tool candidates."""

from astra.data_stage import data_stage
from astra.embedding.build import build_embedder
from astra.envsynth.envs_merged import Inputs, arenas, measure, summarise, with_goals
from astra.envsynth.envs_merged_config import EnvsMergedConfig, GoalsPassed
from astra.envsynth.estimate import merge_asks
from astra.envsynth.offline.handlers import HANDLERS
from astra.estimate.questions import questions_of
from astra.records.environment import Arena, Environment
from astra.records.qa import QAInstance
from astra.records.tool import ToolServer
from astra.sandbox.build import build_sandbox
from astra.stage import run_stage
from astra.tracking.mlflow import digests

TABLES = ("qa_valid", "envs", "tools")


def main() -> None:
    with data_stage("envs_merged", EnvsMergedConfig) as stage:
        stage.expect(lambda: merge_asks(stage.config, questions_of(stage.table("qa_valid"))))
        stage.follow("instances", stage.count("qa_valid"))
        environments = stage.shelf("envs", Environment, lambda environment: environment.qa_id)
        inputs = Inputs(
            instances=lambda: stage.read("qa_valid", QAInstance),
            environments=environments.of,
            servers=lambda: stage.read("tools", ToolServer),
        )
        teacher = stage.teacher(stage.config.teacher, HANDLERS)
        embedder = build_embedder(stage.config.embedding, stage.runtime)
        sandbox = stage.enter(build_sandbox(stage.config.sandbox, stage.runtime))
        passes_goals = stage.config.goals != GoalsPassed.NONE
        read = (*TABLES, "goals") if passes_goals else TABLES
        stage.track(digests(*map(stage.table, read))).tags(sandbox_tier=sandbox.tier)
        outcomes = arenas(
            inputs, teacher, embedder, sandbox, stage.config, stage.open_items, stage.metrics
        )
        if passes_goals:
            outcomes = with_goals(outcomes, stage.read("goals", Arena), stage.config.goals)
        stage.write(outcomes, Arena, measure)
        summarise(stage.metrics, embedder)


if __name__ == "__main__":
    run_stage("envs_merged", main)
