"""Stage rl: train the fine-tuned policy in the training arenas."""

from pathlib import Path

from astra.records.environment import Arena
from astra.rollout.chat import PolicyConfig, load_policy
from astra.rollout.device import prepare_torch
from astra.sandbox.build import build_sandbox
from astra.stage import open_stage, run_stage
from astra.store.tables import read_records
from astra.tracking.mlflow import digests
from astra.train.checkpoints import claim, run_folder, save_policy
from astra.train.distributed import is_main, world_size
from astra.train.launch import load_device, start_processes
from astra.train.rl import choose_arenas, report_rl, train_rl
from astra.train.rl_config import RLConfig

ARENAS, START, MODEL = Path("data/envs_merged.parquet"), Path("models/sft"), Path("models/rl")


def main() -> None:
    with open_stage("rl", RLConfig) as stage:
        config, runtime = stage.config, stage.runtime
        start_processes(runtime.rl_launch, __file__)
        device = load_device(prepare_torch(runtime, config.seed))
        policy = load_policy(PolicyConfig.saved(str(START), config.dtype), device)
        arenas = choose_arenas(read_records(ARENAS, Arena), policy.codec, config)
        inputs = digests(ARENAS, START)
        folder = stage.enter(claim(run_folder("rl", config, inputs)))
        sandbox = stage.enter(build_sandbox(config.sandbox, runtime))
        run = stage.track(inputs)
        run.tags(sandbox_tier=sandbox.tier, world_size=world_size())
        result = train_rl(policy, arenas, config, sandbox, folder, run, runtime.rollout_servers)
        run.tags(groups_lost_to_infra=result.lost_to_infra)
        if is_main():
            save_policy(policy.model, policy.codec.tokenizer, MODEL, result.weights)
            run.register("rl", MODEL, inputs)
        report_rl(stage.metrics, arenas, result)


if __name__ == "__main__":
    run_stage("rl", main)
