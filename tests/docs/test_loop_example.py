"""examples/loop.py runs from a clean clone, and its step raises what it says it raises."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import loop

from astra.rollout.chat import LoadedPolicy
from astra.rollout.live import Rollout


def test_the_step_makes_better_episodes_likelier_and_worse_ones_less_likely(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    objectives: list[tuple[float, float]] = []

    def objective(policy: LoadedPolicy, group: list[Rollout]) -> float:
        advantages = loop.advantages(loop.rewards_of(group))
        pairs = zip(group, advantages, strict=True)
        with torch.no_grad():
            return -sum(loop.grpo_loss(policy, one, gain).item() for one, gain in pairs)

    def measured(policy: LoadedPolicy, group: list[Rollout]) -> None:
        before = objective(policy, group)
        step(policy, group)
        objectives.append((before, objective(policy, group)))

    step = loop.step
    monkeypatch.setattr(loop, "step", measured)
    loop.main()
    ((before, after),) = objectives
    assert after > before
    printed = capsys.readouterr().out
    rewards = re.findall(r"^reward (?:before|after): (\d\.\d+)$", printed, re.MULTILINE)
    assert len(rewards) == 2
    assert all(0 < float(reward) < 1 for reward in rewards), "some are solved, some are not"
