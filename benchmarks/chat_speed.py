"""The chat model's SFT and rollouts against TRL's own, in one run: useful tokens per CPU second.

    python benchmarks/chat_speed.py [--part sft|rollout] [--steps 3] [--rows 16]

SFT: the same conversations, adapters, weights (bfloat16) and optimizer steps through our training
along trees and through SFTTrainer, which pads (four rows at a time, since the logits of eight take
10 GB); a useful token is one of a conversation, however often it is computed. Rollouts: the same
arena, weights, limits and temperature through our engine and through GRPOTrainer's tool loop; a
useful token is a sampled one. Rollouts need the policy that ``chat_model.py sft`` made, since the
base calls no tools.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import warnings
from pathlib import Path

import training
from chat_data import arenas_of, selected
from chat_model import Settings, policy_folder, the_policy
from datasets import Dataset
from staged import ROOT
from training import Clock, ours, parsed, theirs
from trl.trainer import grpo_trainer
from trl.trainer.sft_config import SFTConfig as TRLSFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from astra.records.qa import Split
from astra.rollout.chat import LoadedPolicy, load_policy
from astra.rollout.device import prepare_torch
from astra.tracking.mlflow import Run
from astra.train.lora import add_adapters
from astra.train.sft import Encoded, encode_samples, train_sft


def sft_part(settings: Settings, steps: int) -> None:
    config = settings.sft.model_copy(update={"max_steps": steps, "save_steps": 99})
    base = the_policy(policy_folder("base"))
    policy = load_policy(base)
    chosen = selected("train")[: 2 * steps * config.batch_size]
    rows = encode_samples(chosen, policy.codec, config.max_tokens).rows
    rows = rows[: steps * config.batch_size]
    tokens = sum(len(row["input_ids"]) for row in rows)
    rates: dict[str, float] = {}
    for name in ("ours", "TRL"):
        policy = load_policy(base)
        with tempfile.TemporaryDirectory() as folder:
            if name == "TRL":
                add_adapters(policy, config.lora)
                trainer = SFTTrainer(
                    model=policy.model,
                    args=TRLSFTConfig(
                        output_dir=folder, max_steps=steps, use_cpu=True, bf16=True,
                        per_device_train_batch_size=config.batch_size // 2,
                        gradient_accumulation_steps=2, report_to="none",
                        disable_tqdm=True, max_length=None, save_steps=99,
                        activation_checkpointing=False,
                        dataset_kwargs={"skip_prepare_dataset": True},
                    ),
                    train_dataset=Dataset.from_list(rows),
                    processing_class=policy.codec.tokenizer,
                )  # fmt: skip
                with Clock() as took:
                    trainer.train()
            else:
                with Clock() as took:
                    train_sft(
                        policy, Encoded(rows), Encoded(), config, Path(folder), Run(None, "", "")
                    )
        rates[name] = tokens / took.cpu
    print(
        f"SFT, {len(rows)} conversations of {tokens} tokens: ours {rates['ours']:.0f} tokens per "
        f"CPU second, SFTTrainer {rates['TRL']:.0f}, ratio {rates['ours'] / rates['TRL']:.2f}",
        flush=True,
    )


def rollout_part(policy: LoadedPolicy, rows: int) -> None:
    found = (one for one in arenas_of(Split.TRAIN) if len(one.tools) == 2 and not one.is_hard)
    arena = next(found)
    limits = {"RESPONSE": 256, "TURN": 96, "TURNS": 4}
    for name, value in limits.items():
        setattr(training, name, value)
    batches = [ours(policy, arena, rows, 0.0), theirs(policy, arena, rows, 0.0, False)]
    mine, trl = (one.tokens / one.took.cpu for one in batches)
    calls = "/".join(str(one.calls) for one in batches)
    tokens = "/".join(str(one.tokens) for one in batches)
    print(
        f"rollouts, {rows} conversations, {arena.main_question!r}: ours {mine:.1f} sampled tokens "
        f"per CPU second, GRPOTrainer {trl:.1f}, ratio {mine / trl:.2f}; tokens {tokens}, calls "
        f"{calls}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--part", choices=("sft", "rollout"), action="append")
    parser.add_argument("--steps", type=int, default=3, help="optimizer steps of SFT")
    parser.add_argument("--rows", type=int, default=16, help="rollouts side by side")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    os.chdir(ROOT)
    settings = Settings.of([])
    prepare_torch(settings.runtime, 0)
    grpo_trainer.parse_response = parsed
    parts = chosen.part or ["sft", "rollout"]
    if "sft" in parts:
        sft_part(settings, chosen.steps)
    if "rollout" in parts:
        policy = load_policy(the_policy(policy_folder("sft")))
        policy.model.eval()
        rollout_part(policy, chosen.rows)


if __name__ == "__main__":
    main()
