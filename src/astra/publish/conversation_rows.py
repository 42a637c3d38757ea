"""The published rows of conversations in worlds: what the goal was, and who spoke."""

from __future__ import annotations

import pyarrow as pa

from astra.arena.worlds import goal_of
from astra.llm.protocol import ModelConfig
from astra.publish.data_rows import COUNTED, RowGate, chat_columns
from astra.publish.origins import CONVERSATIONS, goal_id, goals
from astra.records.trajectory import SFTSample
from astra.settings import load
from astra.stage import Progress
from astra.store.tables import read_records
from astra.worlds.conversation_config import PlayedGoalsConfig
from astra.worlds.conversations import GoalExpert
from astra.worlds.goal_config import GoalsConfig

RULES = "rules"
"""Who found the user's words where no teacher was asked for any."""
_JSON, _TEXT = pa.json_(), pa.string()
CONVERSATION_SCHEMA = pa.schema(
    [
        ("id", _TEXT), ("messages", pa.list_(_JSON)), ("tools", pa.list_(_JSON)),
        ("language", _TEXT), ("domain", _TEXT), ("kind", _TEXT), ("traits", pa.list_(_TEXT)),
        ("goal", _TEXT), ("user", _TEXT), ("agent", _TEXT), ("sources", pa.list_(_TEXT)),
        ("licence", _TEXT),
    ]
)  # fmt: skip
CONVERSATION_COUNTED = (*COUNTED, "traits", "user", "agent")


def conversation_rows(gate: RowGate) -> None:
    """The conversations in worlds. A row comes from the world in which its goal is played."""
    played = goals(gate.book)
    agent = _name(load("conversations", PlayedGoalsConfig).teacher, GoalExpert.name)
    teacher = _name(load("goals", GoalsConfig).teacher, RULES)
    progress = Progress("rows")
    for sample in read_records(CONVERSATIONS, SFTSample):
        arena, origin = played[goal_id(sample)]
        row = {
            **chat_columns(sample),
            "kind": arena.kind.value,
            "traits": [trait.value for trait in goal_of(arena).traits],
            "goal": arena.id,
            "user": teacher if arena.prompt_hash else RULES,
            "agent": agent,
        }
        gate.add(sample.split, row, [origin])
        progress.advance(1)


def _name(config: ModelConfig, offline: str) -> str:
    """Who answered a role: the name of the rules, or of the model."""
    return offline if config.backend == "offline" else f"{config.backend}:{config.model}"
