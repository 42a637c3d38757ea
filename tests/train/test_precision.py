"""A policy that computes in bfloat16 trains float32 weights, which move as in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from test_grpo import ScriptedRoller
from training_world import make_arena, make_sample

from astra.rollout.chat import Dtype, LoadedPolicy, PolicyConfig, load_policy
from astra.tracking.mlflow import Run
from astra.train import rl
from astra.train.errors import TrainingError
from astra.train.launch import weights_dtype
from astra.train.optimizers import RefuseRoundedUpdates
from astra.train.sft import Encoded, encode_samples, train_sft
from configs import rl_config, sft_config

TINY = "policies/tiny"
NO_RUN = Run(None, "", "")
STEPS = 20
BOTH: tuple[Literal["sft", "rl"], ...] = ("sft", "rl")


def sft(policy: LoadedPolicy, compute: Dtype, folder: Path, **options: Any) -> None:
    config = sft_config(
        policy=PolicyConfig.saved(TINY, compute).model_dump(), max_steps=STEPS, epochs=9,
        batch_size=4, micro_batch_size=4, learning_rate=1e-5, save_steps=STEPS, **options,
    )  # fmt: skip
    train = encode_samples([make_sample(seed) for seed in range(16)], policy.codec, 512)
    train_sft(policy, train, Encoded(), config, folder, NO_RUN)


def reinforce(policy: LoadedPolicy, compute: Dtype, folder: Path, **options: Any) -> None:
    config = rl_config(
        dtype=compute, groups=2, group_size=2, micro_batch_size=4, steps=STEPS, save_steps=STEPS,
        importance={"type": "trainer"}, dev_arenas=0, learning_rate=2e-6, **options,
    )  # fmt: skip
    nowhere: Any = None  # no call is made
    arenas = rl.Arenas(train=[make_arena(seed) for seed in range(4)])
    rl.train_rl(policy, arenas, config, nowhere, folder, NO_RUN)


def moved(
    stage: str, compute: Dtype, weights: Dtype, folder: Path, **options: Any
) -> tuple[float, float]:
    """The share of weights that 20 steps moved, and the sum of their absolute changes."""
    torch.manual_seed(0)
    policy = load_policy(PolicyConfig.saved(TINY, compute), dtype=weights)
    before = {name: p.detach().clone() for name, p in policy.model.named_parameters()}
    (sft if stage == "sft" else reinforce)(policy, compute, folder, **options)
    changes = [
        (p.detach().double() - before[name].double()).abs()
        for name, p in policy.model.named_parameters()
    ]
    count = sum(change.numel() for change in changes)
    return (
        sum(int((change > 0).sum()) for change in changes) / count,
        sum(float(change.sum()) for change in changes),
    )


@pytest.mark.parametrize("stage", BOTH)
def test_bfloat16_moves_what_float32_moves(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(rl, "GroupRoller", lambda driver, config: ScriptedRoller(2))
    loaded = weights_dtype("bfloat16", sft_config().lora)
    share, change = moved(stage, "bfloat16", loaded, tmp_path / "mixed")
    whole_share, whole_change = moved(stage, "float32", "float32", tmp_path / "whole")
    assert share >= 0.95 * whole_share > 0.9
    assert change == pytest.approx(whole_change, rel=0.05)


def test_weights_that_are_bfloat16_themselves_hardly_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the float32 weights are for: most steps of the optimizer would be rounded to nothing."""
    monkeypatch.setattr(RefuseRoundedUpdates, "on_train_begin", lambda *args, **kwargs: None)
    share, _ = moved("sft", "bfloat16", "bfloat16", tmp_path)
    assert share < 0.1


@pytest.mark.parametrize("stage", BOTH)
def test_sharding_that_accelerate_leaves_out_is_said(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process that is told to shard by FSDP: nothing would keep float32 weights."""
    monkeypatch.setattr(rl, "GroupRoller", lambda driver, config: ScriptedRoller(2))
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    loaded = weights_dtype("bfloat16", sft_config().lora)
    with pytest.raises(TrainingError, match="asks for fsdp2, and accelerate runs without it"):
        moved(stage, "bfloat16", loaded, tmp_path)
