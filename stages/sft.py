"""Stage sft: fine-tune the base policy on the selected trajectories."""

from pathlib import Path

from astra.records.trajectory import SFTSample
from astra.rollout.chat import load_policy
from astra.rollout.device import prepare_torch
from astra.stage import open_stage, run_stage
from astra.store.tables import read_records
from astra.tracking.mlflow import digests
from astra.train.checkpoints import claim, run_folder, save_policy, served_weights
from astra.train.distributed import accumulation_steps, is_main, world_size
from astra.train.launch import load_device, start_processes, weights_dtype
from astra.train.sft import (
    conversations_beside,
    encode_samples,
    report_sft,
    split_samples,
    train_sft,
)
from astra.train.sft_config import SFTConfig

SFT_SET, MODEL = Path("data/sft_set.parquet"), Path("models/sft")
CONVERSATIONS = Path("data/conversations.parquet")


def main() -> None:
    with open_stage("sft", SFTConfig) as stage:
        config, runtime = stage.config, stage.runtime
        start_processes(runtime.sft_launch, __file__)
        # Refuses an uneven batch before weights are loaded.
        accumulation_steps(
            config.batch_size, config.micro_batch_size, "sft", config.context_parallel
        )
        device = load_device(prepare_torch(runtime, config.seed))
        dtype = config.policy.dtype
        policy = load_policy(config.policy, device, weights_dtype(dtype, config.lora))
        train, evaluation = split_samples(read_records(SFT_SET, SFTSample))
        read = [SFT_SET]
        if config.conversations is not None:
            read.append(CONVERSATIONS)
            told = conversations_beside(
                read_records(CONVERSATIONS, SFTSample), config.conversations,
                len(train), len(evaluation),
            )  # fmt: skip
            stage.metrics.count("train_conversations", len(told[0]))
            stage.metrics.count("eval_conversations", len(told[1]))
            train, evaluation = [*train, *told[0]], [*evaluation, *told[1]]
        encoded = [encode_samples(s, policy.codec, config.max_tokens) for s in (train, evaluation)]
        base = Path(config.policy.path)
        inputs = digests(*read, *([base] if base.is_dir() else []))
        folder = stage.enter(claim(run_folder("sft", config, inputs)))
        run = stage.track(inputs)
        run.tags(world_size=world_size())
        result = train_sft(policy, encoded[0], encoded[1], config, folder, run)
        if is_main():
            weights = served_weights(policy.model, result.weights, dtype)
            save_policy(policy.model, policy.codec.tokenizer, MODEL, weights)
            run.register("sft", MODEL, inputs)
        report_sft(stage.metrics, encoded[0], encoded[1], result)


if __name__ == "__main__":
    run_stage("sft", main)
