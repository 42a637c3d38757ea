"""One arena and the policy that solves it, turn by turn, for tests of engines and drivers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from configs import rollout_limits

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))
from training_world import make_arena

from astra.records.environment import Arena
from astra.records.qa import Scenario
from astra.rollout.chat import ChatCodec
from astra.rollout.live import Rollout

LIMITS = rollout_limits(
    max_turns=4, max_turn_tokens=200, max_prompt_tokens=500, max_response_tokens=600
)
ARENA = next(a for a in map(make_arena, range(99)) if a.scenario == Scenario.MULTI_HOP)


def call(arena: Arena, step: int) -> str:
    gold = arena.steps[step]
    (key, value), *_ = gold.arguments.items()
    body = f'{{"name": "{gold.tool_name}", "arguments": {{"{key}": "{value}"}}}}'
    return f"<tool_call>\n{body}\n</tool_call>"


TURNS = [call(ARENA, 0), call(ARENA, 1), f" <answer>{ARENA.final_answer.value}</answer>"]


def expert(codec: ChatCodec) -> Callable[[Sequence[int]], list[int]]:
    """The next turn of the gold conversation, told from how many turns the ids hold."""
    prompt_turns = 2  # EOS ends system and user too

    def reply(ids: Sequence[int]) -> list[int]:
        ended = sum(token == codec.eos_id for token in ids) - prompt_turns
        turn = ended // 2  # each turn and its results end with one
        return [*codec.tokenizer.encode(TURNS[turn], add_special_tokens=False), codec.eos_id]

    return reply


def solved(rollouts: Sequence[Rollout]) -> list[bool]:
    return [one.score is not None and one.score.success for one in rollouts]
