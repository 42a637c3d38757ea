"""RL against rollout servers that fail: run by test_chaos.py, as one rank or as several.

Every sampled token's log-probability says which weights the server used. What went into each
gradient is written down and compared with the weights of its step.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from training_world import make_arena
from transformers import Qwen3Config, Qwen3ForCausalLM

from astra.records.qa import Split
from astra.rollout.chat import LoadedPolicy, PolicyConfig, load_policy
from astra.rollout.engines import vllm as engine
from astra.rollout.scripted_server import INITIAL
from astra.rollout.vllm import VLLMConfig
from astra.sandbox.local import LocalSandbox
from astra.tracking.mlflow import Run
from astra.train import rl
from astra.train.grpo import AdaptiveGRPOTrainer
from configs import engine_options, rl_config

ARENAS = [make_arena(seed) for seed in range(6)]
DEV = [make_arena(seed, Split.DEV) for seed in range(3)]
PATIENCE_S = 5.0
"""What a server may take over anything; a healthy one on a busy machine takes less."""
SCALE = 1024
"""A token by the weights of version v has log-probability -(v + 1) / SCALE."""


def told_by(weights: str) -> float:
    """The log-probability of tokens that ``weights`` generate."""
    return -1.0 if weights == INITIAL else -(int(weights.removeprefix("version-")) + 1) / SCALE


def small_policy() -> LoadedPolicy:
    """The tiny policy's tokens with a model of one narrow layer, the same every time."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    policy = load_policy(PolicyConfig.saved("policies/tiny", "float32"))
    config = Qwen3Config(
        vocab_size=policy.model.config.vocab_size, hidden_size=32, intermediate_size=64,
        num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
        tie_word_embeddings=True, max_position_embeddings=2048,
        eos_token_id=policy.codec.eos_id, pad_token_id=policy.codec.pad_id,
    )  # fmt: skip
    return LoadedPolicy(Qwen3ForCausalLM(config).eval(), policy.codec)


def train(folder: Path, servers: list[str], steps: int) -> dict[str, Any]:
    """What was trained on: by step, the versions that the tokens of its samples tell."""
    # A stalled server is given up soon, since a test does not wait ten minutes.
    short: Any = partial(VLLMConfig, request_timeout_s=PATIENCE_S, sync_timeout_s=PATIENCE_S)
    engine.VLLMConfig = short
    trained: list[tuple[int, list[float]]] = []
    replay = AdaptiveGRPOTrainer._replay

    def noted(trainer: Any) -> Any:
        step = trainer.first_step + int(trainer.state.global_step)
        for sample in trainer._replayed:
            tokens = zip(sample.logprobs, sample.mask, strict=True)
            trained.append((step, sorted({told for told, sampled in tokens if sampled})))
        return replay(trainer)

    hooked: Any = AdaptiveGRPOTrainer
    hooked._replay = noted
    config = rl_config(
        groups=4, group_size=2, micro_batch_size=1, max_rounds=1, patience=steps, steps=steps,
        learning_rate=1e-3, save_steps=steps, dev_every=5, importance={"type": "trainer"},
        engine=engine_options("vllm", timeout_s=60),
    )  # fmt: skip
    arenas = rl.Arenas(train=list(ARENAS), dev=list(DEV))
    try:
        with LocalSandbox() as sandbox:
            result = rl.train_rl(
                small_policy(), arenas, config, sandbox, folder, Run(None, "", ""), tuple(servers)
            )
    finally:
        engine.VLLMConfig, hooked._replay = VLLMConfig, replay
    wrong = [one for one in trained if one[1] != [-(one[0] + 1) / SCALE]]
    return {
        "steps": result.steps,
        "samples": len(trained),
        "wrong": wrong,
        "faults": result.faults,
        "retries": result.trouble.retries,
        "lost": result.trouble.lost,
        "dev": result.dev,
    }


def main(folder: Path, steps: int, servers: list[str]) -> None:
    report = train(folder / "run", servers, steps)
    (folder / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
