"""Stage rl: train the fine-tuned policy in the training arenas."""

from pathlib import Path

from astra.records.environment import Arena
from astra.rollout.chat import PolicyConfig, load_policy
from astra.rollout.device import prepare_torch
from astra.sandbox.build import build_sandbox
from astra.settings import RuntimeConfig, load
from astra.stage import run_stage
from astra.store.metrics import StageMetrics
from astra.store.tables import read_records
from astra.tracking.mlflow import digests, track
from astra.train.checkpoints import claim, mark_finished, run_folder, save_policy
from astra.train.config import RLConfig
from astra.train.distributed import is_main, world_size
from astra.train.launch import load_device, start_processes
from astra.train.rl import choose_arenas, report_rl, train_rl

ARENAS, START, MODEL = Path("data/envs_merged.parquet"), Path("models/sft"), Path("models/rl")


def main() -> None:
    config, runtime = load("rl", RLConfig), load("runtime", RuntimeConfig)
    start_processes(runtime.rl_launch, __file__)
    device = load_device(prepare_torch(runtime, config.seed))
    policy = load_policy(PolicyConfig(path=str(START), dtype=config.dtype), device)
    arenas = choose_arenas(read_records(ARENAS, Arena), policy.codec, config)
    inputs = digests(ARENAS, START)
    folder = run_folder("rl", config, inputs)
    claim(folder)
    with (
        build_sandbox(config.sandbox, runtime) as sandbox,
        track("rl", config, inputs, runtime) as run,
    ):
        run.tags(sandbox_tier=sandbox.tier, world_size=world_size())
        result = train_rl(policy, arenas, config, sandbox, folder, run, runtime.rollout_servers)
        run.tags(groups_lost_to_infra=result.lost_to_infra)
        if not is_main():
            return
        save_policy(policy.model, policy.codec.tokenizer, MODEL, result.weights)
        run.register("rl", MODEL, inputs)
    metrics = StageMetrics("rl")
    report_rl(metrics, arenas, result)
    metrics.write()
    result.curves.write(Path("plots/rl"))
    mark_finished(folder)


if __name__ == "__main__":
    run_stage("rl", main)
