"""Stage conversations: the goals of worlds played with their users, to train on."""

from astra.arena.worlds import world_texts
from astra.data_stage import data_stage
from astra.estimate.asks import counted
from astra.records.environment import Arena
from astra.records.trajectory import SFTSample
from astra.records.world import World
from astra.sandbox.build import build_sandbox
from astra.stage import run_stage
from astra.tracking.mlflow import digests
from astra.worlds.conversation_config import PlayedGoalsConfig
from astra.worlds.conversation_estimate import conversation_asks
from astra.worlds.conversations import (
    ConversationReport,
    GoalPlayer,
    conversations,
    played_goals,
    player,
)


def main() -> None:
    with data_stage("conversations", PlayedGoalsConfig) as stage:
        config = stage.config
        goals = played_goals(stage.read("goals", Arena))
        stage.expect(lambda: conversation_asks(config, counted(len(goals))))
        stage.follow("in", len(goals) * config.samples, "conversations")
        sandbox = stage.enter(build_sandbox(config.sandbox, stage.runtime))
        read = digests(stage.table("worlds"), stage.table("goals"))
        stage.track(read).tags(sandbox_tier=sandbox.tier)
        texts = world_texts(stage.read("worlds", World))
        plays = GoalPlayer(config, texts, player(config, stage.policy), sandbox)
        outcomes = conversations(goals, plays, stage.open_items, stage.metrics)
        stage.write(outcomes, SFTSample, ConversationReport(goals).measure)


if __name__ == "__main__":
    run_stage("conversations", main)
