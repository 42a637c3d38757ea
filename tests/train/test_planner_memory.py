"""The planner's memory against what training holds: random weights of three sizes on a CPU."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from memory_trace import MemoryTrace
from test_grpo import ScriptedRoller
from training_world import make_arena
from transformers import Qwen3Config, Qwen3ForCausalLM

from astra.rollout.chat import LoadedPolicy, PolicyConfig, load_codec
from astra.tracking.mlflow import Run
from astra.train import rl
from astra.train.groups import Group, TrainingSample
from astra.train.planner import ModelShape, Setup, Sharding, own_head, plan
from astra.train.sft import IGNORED, Encoded, train_sft
from configs import rl_config, sft_config

TINY = PolicyConfig.saved("policies/tiny", "bfloat16")
NO_RUN = Run(None, "", "")
SIZES = {
    "2M": (ModelShape(128, 4, 128, 64, 384, 8192, True), 384),
    "6M": (ModelShape(256, 4, 256, 128, 768, 8192, False), 256),
    "12M": (ModelShape(384, 6, 384, 192, 1152, 4096, True), 192),
}
"""Shapes, and the tokens of a sequence."""


def random_policy(shape: ModelShape) -> LoadedPolicy:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            hidden_size=shape.hidden, intermediate_size=shape.feed_forward,
            num_hidden_layers=shape.layers, num_attention_heads=shape.query_width // 32,
            num_key_value_heads=shape.kv_width // 32, head_dim=32, vocab_size=shape.vocabulary,
            tie_word_embeddings=shape.tied, attn_implementation="sdpa",
        )
    )  # fmt: skip
    counted = sum(parameter.numel() for parameter in model.parameters())
    assert shape.parameters == pytest.approx(counted, rel=0.01), "but for norms"
    return LoadedPolicy(model, load_codec(TINY))


def setup_of(name: str, **options: Any) -> Setup:
    shape, tokens = SIZES[name]
    made = Setup(
        shape, tokens, tokens, batch=2, gpus=1, sharding=Sharding.DDP, checkpointing=False,
        device="cpu",
    )  # fmt: skip
    return replace(made, **options)


def sft_peak(setup: Setup, folder: Path) -> int:
    """Two steps of SFT, each of two forward passes, on sequences that are as long as may be."""
    policy, rng = random_policy(setup.shape), random.Random(0)
    trained = int(setup.tokens * setup.trained_share)
    rows: list[dict[str, list[int]]] = []
    for _ in range(4):
        ids = [rng.randrange(2000) for _ in range(setup.tokens)]
        labels = [IGNORED] * (setup.tokens - trained) + ids[-trained:]
        rows.append({"input_ids": ids, "labels": labels})
    config = sft_config(
        policy=TINY.model_dump(), max_steps=2, batch_size=2, micro_batch_size=1, save_steps=9,
        activation_checkpointing=setup.checkpointing,
    )  # fmt: skip
    with MemoryTrace(policy.model.parameters()) as trace:
        train_sft(policy, Encoded(rows), Encoded(), config, folder, NO_RUN)
    return trace.peak


class LongRoller(ScriptedRoller):
    """Groups whose rollouts have ``tokens`` tokens each, prompt included."""

    def __init__(self, size: int, tokens: int) -> None:
        super().__init__(size)
        self._tokens = tokens

    def _group(self, uid: int) -> Group:
        made, rng = super()._group(uid), random.Random(uid)
        prompt = made.samples[0].prompt_ids
        count = self._tokens - len(prompt)
        samples = [
            TrainingSample(
                prompt, [rng.randrange(2000) for _ in range(count)], [1] * count, [-3.0] * count,
                sample.reward, sample.weight_version,
            )
            for sample in made.samples
        ]  # fmt: skip
        return Group(uid, samples, made.figures)


def rl_peak(setup: Setup, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Two steps of RL, each of four forward passes, on rollouts that are as long as may be."""
    policy = random_policy(setup.shape)
    monkeypatch.setattr(rl, "GroupRoller", lambda driver, config: LongRoller(2, setup.tokens))
    config = rl_config(
        dtype="bfloat16", groups=2, group_size=2, micro_batch_size=1, steps=2, save_steps=9,
        dev_arenas=0, activation_checkpointing=setup.checkpointing,
    )  # fmt: skip
    arenas = rl.Arenas(train=[make_arena(seed) for seed in range(4)])
    nowhere: Any = None
    with MemoryTrace(policy.model.parameters()) as trace:
        rl.train_rl(policy, arenas, config, nowhere, folder, NO_RUN)
    return trace.peak


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("name", SIZES)
def test_an_sft_step_holds_what_the_planner_says(
    name: str, checkpointing: bool, tmp_path: Path
) -> None:
    setup = setup_of(name, checkpointing=checkpointing)
    assert own_head(setup)
    measured, planned = sft_peak(setup, tmp_path), plan(setup).total
    assert planned == pytest.approx(measured, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("name", SIZES)
def test_an_rl_step_holds_what_the_planner_says(
    name: str, checkpointing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = setup_of(name, checkpointing=checkpointing, stage="rl", batch=4)
    measured, planned = rl_peak(setup, tmp_path, monkeypatch), plan(setup).total
    assert planned == pytest.approx(measured, rel=0.15)


def test_trls_head_holds_what_the_planner_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("astra.train.sft_config", "astra.train.planner", "astra.train.sft_trainer"):
        monkeypatch.setattr(f"{module}.OWN_HEAD_BYTES", 0)
    setup = setup_of("6M")
    assert not own_head(setup)
    measured, planned = sft_peak(setup, tmp_path), plan(setup).total
    assert planned == pytest.approx(measured, rel=0.15)
