"""The engine of docs/extending.md rolls an episode in a real sandbox."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))
sys.path.insert(0, str(Path(__file__).parent))
from pages import blocks
from training_world import make_arena

from astra.records.qa import Scenario
from astra.rollout.chat import PolicyConfig, load_codec
from astra.rollout.engine import Sampling
from astra.rollout.live import Job, RolloutLimits
from astra.rollout.streaming import StreamingDriver
from astra.sandbox.local import LocalSandbox


def test_the_engine_solves_an_arena_with_gold_calls(root: Path) -> None:
    page = blocks(root / "docs/extending.md")
    (text,) = (one.text for one in page if one.title.endswith("rollout/scripted.py"))
    made: dict[str, Any] = {}
    exec(compile(text, "scripted.py", "exec"), made)

    arena = next(a for a in map(make_arena, range(99)) if a.scenario == Scenario.MULTI_HOP)
    codec = load_codec(PolicyConfig(path=str(root / "policies/tiny")))
    turns = [gold_call(step.tool_name, step.arguments) for step in arena.steps if step.tool_name]
    turns.append(f" <answer>{arena.final_answer.value}</answer>")

    def write(ids: Sequence[int]) -> list[int]:
        ended = sum(token == codec.eos_id for token in ids) - 2  # system and user end with one
        turn = turns[ended // 2]
        return [*codec.tokenizer.encode(turn, add_special_tokens=False), codec.eos_id]

    engine = made["ScriptedEngine"](write, kv_tokens=4000)
    limits = RolloutLimits(
        max_turns=4, max_turn_tokens=200, max_prompt_tokens=500, max_response_tokens=600
    )
    with LocalSandbox() as sandbox:
        driver = StreamingDriver(engine, codec, sandbox, limits)
        (rollout,) = driver.run([Job(arena)], Sampling())
    assert rollout.score is not None
    assert rollout.score.success


def gold_call(name: str, arguments: dict[str, Any]) -> str:
    (key, value), *_ = arguments.items()
    body = f'{{"name": "{name}", "arguments": {{"{key}": "{value}"}}}}'
    return f"<tool_call>\n{body}\n</tool_call>"
