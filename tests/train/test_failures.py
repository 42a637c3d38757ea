"""What goes wrong in a run: one clear error, and nothing on disk that is not whole."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from test_grpo import ScriptedRoller
from training_world import make_arena, make_sample
from trl.trainer.grpo_trainer import GRPOTrainer

from astra.rollout.chat import LoadedPolicy, PolicyConfig, load_policy
from astra.rollout.errors import EngineError
from astra.tracking.mlflow import Run
from astra.train import launch, rl
from astra.train.checkpoints import STATE_FILE
from astra.train.curves import Curves
from astra.train.errors import TrainingError
from astra.train.groups import Group
from astra.train.grpo import AdaptiveGRPOTrainer
from astra.train.launch import LAUNCHED, load_device, start_processes
from astra.train.lora import add_adapters, merge_adapters
from astra.train.sft import encode_samples, train_sft
from astra.train.sft_trainer import AssistantSFTTrainer
from astra.train.watch import StepProgress, Watcher, explained
from configs import rl_config, sft_config

NO_RUN = Run(None, "", "")


@pytest.fixture
def policy() -> LoadedPolicy:
    torch.set_num_threads(1)
    return load_policy(PolicyConfig.saved("policies/tiny", "float32"))


def fine_tune(policy: LoadedPolicy, folder: Path, **options: Any) -> Any:
    settings = {
        "max_steps": 4,
        "batch_size": 2,
        "micro_batch_size": 2,
        "save_steps": 1,
        "epochs": 9,
    }
    config = sft_config(**(settings | options))
    train = encode_samples([make_sample(seed) for seed in range(4)], policy.codec, 512)
    return train_sft(policy, train, encode_samples([], policy.codec, 9), config, folder, NO_RUN)


@pytest.mark.parametrize("poison", ["nan", "inf"])
def test_a_loss_that_is_no_number_ends_the_run_before_it_is_saved(
    policy: LoadedPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, poison: str
) -> None:
    original, calls = AssistantSFTTrainer.compute_loss, [0]

    def poisoned(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        loss = original(*args, **kwargs)
        return loss * float(poison) if calls[0] == 3 else loss

    monkeypatch.setattr(AssistantSFTTrainer, "compute_loss", poisoned)
    with pytest.raises(TrainingError, match=f"step 3: loss is {poison}"):
        fine_tune(policy, tmp_path)
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == [
        "checkpoint-1", "checkpoint-2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_exhausted_memory_says_what_to_lower(error: Exception, tmp_path: Path) -> None:
    with (
        pytest.raises(TrainingError, match=r"out of memory .* lower this, then train again"),
        explained(tmp_path, "lower this"),
    ):
        raise error


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="shape"), explained(tmp_path, "lower this"):
        raise RuntimeError("shape mismatch")


def test_a_disk_is_blamed_for_what_was_torn_now_alone(tmp_path: Path) -> None:
    torn = tmp_path / "checkpoint-5"
    torn.mkdir()
    with pytest.raises(RuntimeError, match="remote process"), explained(tmp_path, "lower this"):
        raise RuntimeError("NCCL error: remote process exited")

    def written_again() -> None:
        with explained(tmp_path, "lower this"):
            torn.rmdir()
            time.sleep(0.02)  # a disk's clock ticks in hundredths
            torn.mkdir()
            raise OSError("no space")

    with pytest.raises(TrainingError, match="checkpoint-5 cannot be written: no space"):
        written_again()


def test_progress_goes_on_where_the_checkpoint_stands(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    progress = StepProgress(400)
    watcher = Watcher(Curves(), NO_RUN, progress)
    loss = {"loss": [(step, 1.0) for step in range(1, 201)]}
    watcher.restore({"curves": loss})
    with caplog.at_level("INFO", "astra"):
        for _ in range(20):
            clock[0] += 10.0
            progress.advance()
        progress.close()
    assert caplog.messages[-1].startswith("steps 220/400, 0.1/s, 30 min 0 s left")


@pytest.mark.parametrize(("informative", "steps"), [(True, 3), (False, 1)])
def test_a_run_that_made_all_its_steps_did_not_end_early(
    policy: LoadedPolicy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    informative: bool,
    steps: int,
) -> None:
    """Signal in the first step alone, so that patience runs out with the last one; and none in a
    run of fewer steps than ``patience``, as one of scale ``test`` is."""
    roller = ScriptedRoller(2, informative, every=1000)
    monkeypatch.setattr(rl, "GroupRoller", lambda driver, config: roller)
    config = rl_config(
        steps=steps, groups=2, group_size=2, micro_batch_size=4, patience=2, max_rounds=1,
        batch_filling=False,
    )  # fmt: skip
    arenas = rl.Arenas(train=[make_arena(seed) for seed in range(9)])
    sandbox: Any = None
    result = rl.train_rl(policy, arenas, config, sandbox, tmp_path, NO_RUN)
    assert (result.steps, result.stopped_early) == (steps, False)


def test_arenas_that_never_differ_in_reward_are_one_clear_error(
    policy: LoadedPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rl, "GroupRoller", lambda driver, config: ScriptedRoller(2, False))
    config = rl_config(
        steps=9, groups=2, group_size=2, micro_batch_size=4, patience=2, max_rounds=1
    )
    arenas = rl.Arenas(train=[make_arena(seed) for seed in range(3)])
    sandbox: Any = None
    with pytest.raises(TrainingError, match="no group of rollouts differed in reward in 2 steps"):
        rl.train_rl(policy, arenas, config, sandbox, tmp_path, NO_RUN)


def test_memory_exhausted_in_a_step_of_rl(
    policy: LoadedPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*args: Any, **kwargs: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(rl, "GroupRoller", lambda driver, config: ScriptedRoller(2))
    monkeypatch.setattr(GRPOTrainer, "training_step", exhausted)
    config = rl_config(steps=2, groups=2, group_size=2, micro_batch_size=4)
    arenas = rl.Arenas(train=[make_arena(seed) for seed in range(3)])
    sandbox: Any = None
    with pytest.raises(TrainingError, match=r"lower rl\.micro_batch_size, rl\.engine\.rows"):
        rl.train_rl(policy, arenas, config, sandbox, tmp_path, NO_RUN)


class DyingRoller(ScriptedRoller):
    """No engine is left when the third batch is rolled."""

    dies = True

    def roll(self, prompts: Sequence[tuple[int, Any]], seed: int) -> list[Group]:
        if self.version == 2 and self.dies:
            raise EngineError("no vLLM server is left")
        return super().roll(prompts, seed)


def reinforce(folder: Path) -> tuple[LoadedPolicy, rl.RLResult]:
    policy = load_policy(PolicyConfig.saved("policies/tiny", "float32"))
    config = rl_config(
        steps=4, groups=2, group_size=2, micro_batch_size=4, save_steps=1, learning_rate=1e-3
    )
    arenas = rl.Arenas(train=[make_arena(seed) for seed in range(3)])
    sandbox: Any = None
    return policy, rl.train_rl(policy, arenas, config, sandbox, folder, NO_RUN)


def checkpoints(folder: Path) -> list[str]:
    """Those that are whole."""
    return sorted(path.parent.name for path in folder.glob(f"checkpoint-*/{STATE_FILE}"))


def test_a_dead_engine_ends_the_run_and_costs_nothing_that_was_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(rl, "GroupRoller", lambda driver, config: DyingRoller(2))
    with pytest.raises(EngineError, match="no vLLM server is left"):
        reinforce(tmp_path / "died")
    assert checkpoints(tmp_path / "died") == ["checkpoint-1", "checkpoint-2"]
    monkeypatch.setattr(DyingRoller, "dies", False)
    again, resumed = reinforce(tmp_path / "died")
    whole, uninterrupted = reinforce(tmp_path / "whole")
    assert resumed.curves.points() == uninterrupted.curves.points()
    for one, other in zip(again.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_loss_that_is_no_number_ends_rl_before_it_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(1)
    original = AdaptiveGRPOTrainer._compute_loss

    def poisoned(self: Any, *args: Any) -> Any:
        loss = original(self, *args)
        return loss * float("nan") if self.state.global_step == 2 else loss

    monkeypatch.setattr(AdaptiveGRPOTrainer, "_compute_loss", poisoned)
    monkeypatch.setattr(rl, "GroupRoller", lambda driver, config: ScriptedRoller(2))
    with pytest.raises(TrainingError, match="step 3: loss is nan"):
        reinforce(tmp_path)
    assert checkpoints(tmp_path) == ["checkpoint-1", "checkpoint-2"]


def test_the_stage_becomes_its_launch_command(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.delenv(LAUNCHED, raising=False)
    monkeypatch.delenv(launch.LAUNCH, raising=False)
    monkeypatch.setattr(launch.os, "execvpe", lambda *args: started.append(args))
    monkeypatch.setattr(launch, "die_with_parent", lambda: None)
    start_processes("", "stages/rl.py")
    assert not started, "one process needs no launcher"
    torchrun = "torchrun --nproc_per_node 2"
    start_processes(torchrun, "stages/rl.py")
    ((program, command, environment),) = started
    assert program == "torchrun"
    assert command == ["torchrun", "--nproc_per_node", "2", "stages/rl.py"]
    assert environment[LAUNCHED] == "1"
    monkeypatch.setenv(LAUNCHED, "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    start_processes(torchrun, "stages/rl.py")
    assert len(started) == 1, "what was launched trains"
    monkeypatch.delenv("WORLD_SIZE")
    with pytest.raises(TrainingError, match="started 1 of 2 processes"):
        start_processes(torchrun, "stages/rl.py")


LAUNCHER = """
import subprocess, sys, time
command = "import time; from astra.train.launch import start_processes; "
command += "start_processes('x', ''); print('trains', flush=True); "
command += "time.sleep(60)"
print(subprocess.Popen([sys.executable, "-c", command]).pid, flush=True)
time.sleep(60)
"""


def test_what_was_launched_dies_with_its_launcher() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCHER],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {LAUNCHED: "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as launcher:
        assert launcher.stdout
        child = psutil.Process(int(launcher.stdout.readline()))
        assert launcher.stdout.readline() == "trains\n"
        launcher.kill()
        gone, alive = psutil.wait_procs([child], timeout=10)
    assert gone or alive[0].status() == psutil.STATUS_ZOMBIE


def test_a_launcher_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LAUNCHED, raising=False)
    with pytest.raises(TrainingError, match=r"no-such-launcher. cannot be started"):
        start_processes("no-such-launcher", "stages/rl.py")


def test_a_model_to_be_spread_is_loaded_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    assert load_device("cuda:1") == "cuda:1"
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    for stage, device in ((2, "cuda:1"), (3, "cpu")):
        file = root / "conf" / "deepspeed" / f"zero{stage}.json"
        monkeypatch.setenv("ACCELERATE_DEEPSPEED_CONFIG_FILE", str(file))
        assert load_device("cuda:1") == device
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    assert load_device("cuda:1") == "cpu"


def test_sequences_cannot_be_shared_by_more_processes_than_there_are(
    policy: LoadedPolicy, tmp_path: Path
) -> None:
    assert "WORLD_SIZE" not in os.environ
    with pytest.raises(TrainingError, match="1 processes cannot share sequences by 2"):
        fine_tune(policy, tmp_path, context_parallel=2)


def test_lora_trains_few_weights_and_saves_a_whole_policy(
    policy: LoadedPolicy, tmp_path: Path
) -> None:
    before = {name: p.clone() for name, p in policy.model.named_parameters()}
    result = fine_tune(policy, tmp_path, lora={"rank": 4}, learning_rate=1e-2)
    assert result.steps == 4
    after = dict(policy.model.named_parameters())
    assert set(after) == set(before), "merged: the model is what it was"
    moved = {name for name in after if not torch.equal(after[name], before[name])}
    assert moved
    assert all("_proj" in name for name in moved), "linear layers alone"


def test_lora_without_peft_says_how_to_get_it(
    policy: LoadedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = rl_config().lora
    add_adapters(policy, none)
    merge_adapters(policy, none)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(TrainingError, match="peft is not installed"):
        add_adapters(policy, none.model_copy(update={"rank": 4}))
