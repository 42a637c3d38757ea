"""Stage rl: train the fine-tuned policy in the training arenas."""

from pathlib import Path

from astra.arena.world_table import read_arenas, tables_of
from astra.records.curriculum import CurriculumArena
from astra.rollout.chat import PolicyConfig, load_policy
from astra.rollout.device import prepare_torch
from astra.sandbox.build import build_sandbox
from astra.stage import open_stage, run_stage
from astra.store.tables import write_records
from astra.tracking.mlflow import digests
from astra.train.checkpoints import claim, run_folder, save_policy, served_weights
from astra.train.distributed import accumulation_steps, is_main, world_size
from astra.train.launch import load_device, start_processes, weights_dtype
from astra.train.rl import choose_arenas, report_rl, train_rl
from astra.train.rl_config import RLConfig

ARENAS, START, MODEL = Path("data/envs_merged.parquet"), Path("models/sft"), Path("models/rl")


def main() -> None:
    with open_stage("rl", RLConfig) as stage:
        config, runtime = stage.config, stage.runtime
        start_processes(runtime.rl_launch, __file__)
        # Refuses an uneven batch before weights are loaded.
        accumulation_steps(config.groups * config.group_size, config.micro_batch_size, "rl")
        device = load_device(prepare_torch(runtime, config.seed))
        start = PolicyConfig.saved(str(START), config.dtype)
        policy = load_policy(start, device, weights_dtype(config.dtype, config.lora))
        inputs = digests(*tables_of(ARENAS), START)
        folder = run_folder("rl", config, inputs)
        arenas = choose_arenas(read_arenas(ARENAS), policy.codec, config, folder)
        stage.enter(claim(folder))
        sandbox = stage.enter(build_sandbox(config.sandbox, runtime))
        run = stage.track(inputs)
        run.tags(sandbox_tier=sandbox.tier, world_size=world_size())
        result = train_rl(policy, arenas, config, sandbox, folder, run, runtime.rollout_servers)
        run.tags(groups_lost_to_infra=result.trouble.lost)
        if is_main():
            weights = served_weights(policy.model, result.weights, config.dtype)
            save_policy(policy.model, policy.codec.tokenizer, MODEL, weights)
            if result.curriculum:
                write_records(
                    MODEL / "curriculum.parquet",
                    sorted(result.curriculum, key=lambda one: one.id), CurriculumArena,
                )  # fmt: skip
            run.register("rl", MODEL, inputs)
        report_rl(stage.metrics, arenas, result)


if __name__ == "__main__":
    run_stage("rl", main)
