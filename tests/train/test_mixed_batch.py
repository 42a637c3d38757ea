"""Arenas that write and arenas that only read in one batch, each paid by its own kind of reward."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from configs import rl_config

sys.path.insert(0, str(Path(__file__).parents[1] / "export"))
from scripted import sample_arena, write_arena

from astra.agent.prompt import final_message
from astra.agent.toolcalls import render_call
from astra.arena.answers import render_answer
from astra.records.environment import Arena
from astra.records.qa import QuestionKind
from astra.rollout.chat import PolicyConfig, load_codec
from astra.rollout.driver import RolloutDriver
from astra.rollout.engine import FakeEngine, Turn
from astra.rollout.live import RolloutLimits
from astra.sandbox.local import LocalSandbox
from astra.train.groups import GroupRoller, mean_figures

READ, WRITE = sample_arena("Amber Cove", 812, 3), write_arena()


def gold(arena: Arena, drop: int = 0, **changed: str) -> list[str]:
    """The gold calls less the last ``drop``, arguments changed; then the gold answer."""
    steps = [step for step in arena.steps if step.tool_name is not None]
    calls = [
        render_call(step.tool_name or "", json.dumps(step.arguments | changed))
        for step in steps[: len(steps) - drop]
    ]
    return ["\n".join(calls), final_message("done.", [render_answer(arena.final_answer)])]


def test_both_kinds_train_in_one_batch_and_are_logged_apart() -> None:
    """Of each arena one rollout does all, one less, in an order that the group keeps."""
    codec = load_codec(PolicyConfig.saved("policies/tiny", "float32"))
    scripts = [gold(READ), gold(READ, drop=1), gold(WRITE), gold(WRITE, guest="Olga Joss")]
    encoded = [[codec.tokenizer.encode(t, add_special_tokens=False) for t in s] for s in scripts]
    asked: list[int] = []

    class Rows(FakeEngine):
        """One script per row."""

        def poll(self) -> list[Turn]:
            asked[:] = [row for row, _ in self._waiting]
            return super().poll()

    engine = Rows(lambda _, turn: encoded[asked.pop(0)][turn], codec.eos_id)
    config = rl_config(
        group_size=2, groups=2, irrelevant_tools="none",
        limits={"max_turns": 4, "max_turn_tokens": 300, "max_response_tokens": 900},
    )  # fmt: skip
    with LocalSandbox() as sandbox:
        limits: RolloutLimits = config.limits
        driver = RolloutDriver(engine, codec, sandbox, limits, config.reward, config.final_answer)
        read, write = GroupRoller(driver, config).roll([(0, READ), (1, WRITE)], seed=0)
    assert (read.kind, write.kind) == (QuestionKind.READ_ONLY, QuestionKind.WRITE)
    # n sub-tasks, the final answer one of them, paid where its steps are: 2 * 3 / (3 + 3), and
    # 2 * 1 / (3 + 2)
    assert [sample.reward for sample in read.samples] == pytest.approx([1.0, 0.4], abs=1e-5)
    # The wrong guest's row is another end state: neither the call nor the answer counts.
    assert [sample.reward for sample in write.samples] == pytest.approx([1.0, 0.0], abs=1e-5)
    assert read.informative(1e-6)
    assert write.informative(1e-6)
    means = mean_figures([read, write])
    assert means["read_only_reward"] == pytest.approx(0.7, abs=1e-5)
    assert means["write_reward"] == pytest.approx(0.5, abs=1e-5)
    assert means["reward"] == pytest.approx(0.6, abs=1e-5)
