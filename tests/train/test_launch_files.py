"""What conf/launch and conf/accelerate start; the programs they start write down their calls."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from astra.devtools import params
from astra.rollout.vllm import VLLMConfig
from astra.train.launch import LAUNCH, LAUNCHED

RECORD = """#!/bin/sh
printf '%s\\n' "$@" > "{folder}/{name}.arguments"
env > "{folder}/{name}.environment"
"""
NAMES = ("vllm", "accelerate", "dvc")


def started(root: Path, folder: Path, script: str, *arguments: str, **given: str) -> list[str]:
    """Run a launch file; the arguments of the one program it started."""
    folder.mkdir(exist_ok=True)
    for name in NAMES:
        (folder / name).write_text(RECORD.format(folder=folder, name=name))
    (folder / "scontrol").write_text("#!/bin/sh\nprintf 'host7\\nhost8\\n'\n")
    for file in folder.iterdir():
        file.chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    subprocess.run(
        ["bash", str(root / "conf/launch" / script), *arguments], check=True, timeout=20, cwd=root,
        env={"PATH": path, **given},
    )  # fmt: skip
    (made,) = folder.glob("*.arguments")
    return made.read_text().splitlines()


def environment(folder: Path, name: str) -> dict[str, str]:
    lines = (folder / f"{name}.environment").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_a_rollout_server_says_what_the_engine_relies_on(root: Path, tmp_path: Path) -> None:
    made = started(root, tmp_path, "vllm.sh", "policies/tiny", "8001", "--max-model-len", "4096")
    assert made[:2] == ["serve", "policies/tiny"]
    options = dict(zip(made[2::2], made[3::2], strict=False))
    assert options["--port"] == "8001"
    # Log-probabilities of the distribution that was sampled from, temperature included.
    assert options["--logprobs-mode"] == "processed_logprobs"
    # The model's own generation_config.json would bring its stop tokens and its top_p.
    assert options["--generation-config"] == "vllm"
    assert options["--served-model-name"] == VLLMConfig(("http://x",)).model
    assert "--enable-prefix-caching" in made, "every turn sends the conversation again"
    assert "--enable-prompt-tokens-details" in made, "else a reset of the cache cannot be proven"
    assert made[-2:] == ["--max-model-len", "4096"], "further options reach the server"
    seen = environment(tmp_path, "vllm")
    assert seen["VLLM_SERVER_DEV_MODE"] == "1", "weights are taken over through /collective_rpc"


def test_a_rollout_server_may_come_from_an_environment_of_its_own(
    root: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.write_text(RECORD.format(folder=tmp_path, name="own"))
    made = started(root, tmp_path, "vllm.sh", "policies/tiny", "8001", VLLM=str(own))
    assert made[:2] == ["serve", "policies/tiny"]
    with pytest.raises(subprocess.CalledProcessError):
        started(root, tmp_path / "no_port", "vllm.sh", "policies/tiny")


@pytest.mark.parametrize(
    ("given", "machines", "rank", "main"),
    [
        ({}, 1, 0, "localhost"),
        ({"MACHINES": "2", "MACHINE": "1", "MAIN": "host0"}, 2, 1, "host0"),
        ({"SLURM_JOB_NUM_NODES": "4", "SLURM_NODEID": "3", "MAIN": "host0"}, 4, 3, "host0"),
    ],
)
def test_every_machine_joins_as_itself(
    root: Path, tmp_path: Path, given: dict[str, str], machines: int, rank: int, main: str
) -> None:
    made = started(root, tmp_path, "node.sh", "stages/rl.py", **given)
    assert made[0] == "launch"
    assert made[-1] == "stages/rl.py"
    options = dict(zip(made[1:-1:2], made[2:-1:2], strict=True))
    assert options["--num_machines"] == str(machines)
    assert options["--num_processes"] == str(8 * machines)
    assert options["--machine_rank"] == str(rank)
    assert options["--main_process_ip"] == main
    assert (root / options["--config_file"]).is_file()
    assert environment(tmp_path, "accelerate")[LAUNCHED] == "1", "the stage must not launch again"


def test_slurm_starts_the_stage_on_every_node(root: Path, tmp_path: Path) -> None:
    nodes = {"SLURM_JOB_NODELIST": "host[7-8]"}
    made = started(root, tmp_path, "slurm.sbatch", "rl", **nodes)
    assert made == ["repro", "--single-item", "rl"]
    seen = environment(tmp_path, "dvc")
    assert seen["MAIN"] == "host7"
    assert seen[LAUNCH] == "srun --export=ALL conf/launch/node.sh"


@pytest.mark.parametrize("name", ["ddp", "zero2", "zero3", "fsdp2", "fsdp2_cp"])
def test_no_configuration_would_quietly_do_less(root: Path, name: str) -> None:
    """Told to use the CPU, accelerate starts one process and leaves DeepSpeed out."""
    made: dict[str, Any] = yaml.safe_load((root / f"conf/accelerate/{name}.yaml").read_text())
    assert not made.get("use_cpu", False)
    kind = {"ddp": "MULTI_GPU", "zero2": "DEEPSPEED", "zero3": "DEEPSPEED"}.get(name, "FSDP")
    assert made["distributed_type"] == kind
    if kind == "FSDP":
        assert made["fsdp_config"]["fsdp_version"] == 2, "only the second shards by parameter"
    if kind == "DEEPSPEED":
        path = root / made["deepspeed_config"]["deepspeed_config_file"]
        zero = json.loads(path.read_text())["zero_optimization"]
        assert zero["stage"] == int(name[-1])
        # Without it a checkpoint of ZeRO-3 holds no model.safetensors.
        assert zero.get("stage3_gather_16bit_weights_on_model_save", False) == (name == "zero3")


@pytest.mark.parametrize(
    ("stage", "changes", "processes", "said"),
    [
        (
            "sft",
            ["sft.micro_batch_size=7"],
            "1",
            "sft: a batch of 24 is no multiple of micro",
        ),
        ("rl", [], "7", r"rl: a batch of 64 is no multiple of .* \(rl\.groups x rl\.group_size\)"),
    ],
)
def test_a_stage_tells_of_an_uneven_batch_before_it_loads_weights(
    root: Path, tmp_path: Path, stage: str, changes: list[str], processes: str, said: str
) -> None:
    """Where it runs there is no policy at all."""
    changes = [*changes, "runtime.sft_launch=''", "runtime.rl_launch=''"]
    params.compose(tmp_path / "params.yaml", changes)
    done = subprocess.run(
        [sys.executable, str(root / "stages" / f"{stage}.py")], cwd=tmp_path, text=True,
        env={**os.environ, "PYTHONPATH": str(root / "src"), "WORLD_SIZE": processes},
        capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode
    assert re.search(said, done.stderr), done.stderr
