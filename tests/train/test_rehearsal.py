"""`astra train rehearse`: green for the paper's policies, red for mistakes in conf or folders."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from astra.errors import AstraError
from astra.rollout.chat import PolicyConfig, load_codec
from astra.settings import validate
from astra.train.launch import Sharding
from astra.train.planner import SHAPES
from astra.train.rehearsal import world
from astra.train.rehearsal.architecture import Architecture, model_config
from astra.train.rehearsal.launches import read_launch
from astra.train.rehearsal.rehearse import rehearse
from astra.train.rehearsal.standin import tokenizer_of
from astra.train.sft import encode_samples

PAPER = ("scale=paper", "policy=qwen3_14b")
MINUTES = 1500
BLOCKS = ("sft", "rl", "runtime", "policy", "architecture")


@pytest.fixture
def repository(root: Path, tmp_path: Path) -> Path:
    """A copy of what a rehearsal reads, in which mistakes may be planted."""
    copy = tmp_path / "repository"
    for name in ("conf", "stages"):
        shutil.copytree(root / name, copy / name)
    shutil.copy(root / "dvc.yaml", copy)
    return copy


def composed(repository: Path, *overrides: str) -> dict[str, Any]:
    with initialize_config_dir(str(repository / "conf"), version_base=None):
        params = compose("config", list(overrides))
    return {
        name: OmegaConf.to_container(params[name], resolve=True)
        for name in BLOCKS
        if name in params
    }


def red(repository: Path, *overrides: str, place: Path | None = None) -> str:
    """What a rehearsal of the paper's preset says that is red; its folder is kept and named."""
    told: list[str] = []
    place = place or repository.parent
    params = composed(repository, *PAPER, *overrides)
    with pytest.raises(AstraError) as caught:
        rehearse(repository, params, Sharding.DDP, place, told.append)
    assert "kept: " in told[-1]
    assert Path(told[-1].removeprefix("kept: ")).is_dir()
    return str(caught.value)


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def architecture(repository: Path, policy: str) -> Architecture:
    block = composed(repository, "scale=paper", f"policy={policy}")["architecture"]
    return validate("architecture", block, Architecture)


# --- what the conf states


@pytest.mark.parametrize("policy", ["qwen3_14b", "qwen3_32b"])
def test_the_shrunken_model_keeps_the_ratios_and_the_vocabulary(root: Path, policy: str) -> None:
    whole = architecture(root, policy)
    planned = SHAPES[policy.replace("_", "-")]
    assert whole.parameters == planned.parameters, "one shape, for the planner and here"
    small = whole.shrunken()
    assert small.vocab_size == whole.vocab_size
    for one in (whole, small):
        assert (
            one.hidden_size * whole.intermediate_size == one.intermediate_size * whole.hidden_size
        )
        heads = one.num_attention_heads * whole.num_key_value_heads
        assert heads == whole.num_attention_heads * one.num_key_value_heads
        width = one.num_attention_heads * one.head_dim * whole.hidden_size
        assert width == whole.num_attention_heads * whole.head_dim * one.hidden_size
    assert small.parameters < 30e6


def test_the_stand_in_has_the_size_the_special_ids_and_the_template_of_the_policy(
    root: Path, tmp_path: Path
) -> None:
    params = composed(root, *PAPER)
    config = validate("policy", params["policy"], PolicyConfig)
    stated = architecture(root, "qwen3_14b")
    assert stated.tokenizer is not None
    made, called = tokenizer_of(config, stated, world.texts(), readable=False)
    assert "a stand-in of 151,669 entries, 26 of them special" in called
    assert (len(made), made.eos_token_id, made.pad_token_id) == (151669, 151645, 151643)
    assert made.convert_tokens_to_ids(["<tool_call>", "<think>", "</think>"]) == [
        151657, 151667, 151668,
    ]  # fmt: skip
    made.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    codec = load_codec(PolicyConfig.saved(str(tmp_path), "bfloat16"))
    assert codec.template_hash == stated.tokenizer.template_hash
    encoded = encode_samples(world.samples(), codec, 1024)
    assert not encoded.rejections
    assert max(len(row["input_ids"]) for row in encoded.rows) < 768, "fits the scaled limits"


@pytest.mark.parametrize(
    ("text", "processes", "sharding", "started"),
    [
        ("", 1, "ddp", ""),
        (
            "accelerate launch --config_file conf/accelerate/fsdp2.yaml", 8, "fsdp2",
            "accelerate launch --config_file conf/accelerate/fsdp2.yaml --num_processes 2 -m "
            "astra.train.rehearsal.rank",
        ),
        (
            "accelerate launch --config_file=conf/accelerate/zero3.yaml --num_processes=16", 16,
            "zero3", "accelerate launch --config_file=conf/accelerate/zero3.yaml "
            "--num_processes=1 -m astra.train.rehearsal.rank",
        ),
        (
            "torchrun --standalone --nproc_per_node 4", 4, "ddp",
            "torchrun --standalone --nproc_per_node 2 -m astra.train.rehearsal.rank",
        ),
    ],
)  # fmt: skip
def test_a_launch_command_stays_what_it_is_with_fewer_processes(
    root: Path, text: str, processes: int, sharding: str, started: str
) -> None:
    launch = read_launch("rl", text, None, root)
    assert (launch.processes, launch.sharding, launch.rehearsed()) == (processes, sharding, started)


# --- planted mistakes: setting, found and expected value are named


def test_red_for_a_template_of_another_family(repository: Path) -> None:
    said = red(repository, "policy.template=llama3")
    assert "policy.template" in said
    assert "<|eot_id|>" in said
    assert "<|im_end|>" in said


def policy_folder(repository: Path, more: str = "", **numbers: int) -> Path:
    """The policy's configuration with other ``numbers`` and the stand-in tokenizer, whose template
    says ``more``."""
    stated = architecture(repository, "qwen3_14b")
    config = validate("policy", composed(repository, *PAPER)["policy"], PolicyConfig)
    tokenizer, _ = tokenizer_of(config, stated, world.texts(), readable=False)
    tokenizer.chat_template += more
    folder = repository / "policies" / "mine"
    tokenizer.save_pretrained(folder)
    shape = stated.model_copy(update=numbers)
    model_config(shape, 151645, 151643, "bfloat16").save_pretrained(folder)
    return folder


def test_red_for_a_folder_with_another_template_than_the_publishers(repository: Path) -> None:
    folder = policy_folder(repository, "{# mine #}")
    said = red(repository, f"policy.path={folder}", "policy.revision=null")
    assert "policy.template own (architecture.tokenizer.template_hash): found" in said
    assert "expected 'a55ee1b1660128b7'" in said


def test_red_for_a_folder_of_another_size(repository: Path) -> None:
    folder = policy_folder(repository, num_hidden_layers=36)
    said = red(repository, f"policy.path={folder}", "policy.revision=null")
    assert "architecture.num_hidden_layers: found 36, expected 40" in said


def test_red_for_a_folder_whose_tokenizer_pads_with_another_token(repository: Path) -> None:
    folder = policy_folder(repository)
    file = folder / "tokenizer_config.json"
    file.write_text(file.read_text().replace('"pad_token": "<|endoftext|>"', '"pad_token": null'))
    said = red(repository, f"policy.path={folder}", "policy.revision=null")
    assert "(policy.pad_token): found None, expected '<|endoftext|>'" in said


def test_red_without_a_pad_token(repository: Path) -> None:
    said = red(repository, "architecture.tokenizer.pad=null")
    assert "policy.pad_token is null and its tokenizer names none" in said
    assert "not EOS ('<|im_end|>')" in said


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["sft.batch_size=33"], "sft.batch_size: found 33, expected a multiple of"),
        (
            ["rl.groups=9", "rl.group_size=7"],
            "rl.groups x rl.group_size: found 63, expected a multiple of 8 ",
        ),
    ],
)
def test_red_for_a_batch_that_does_not_divide_over_the_presets_processes(
    repository: Path, overrides: list[str], said: str
) -> None:
    assert said in red(repository, *overrides)


def test_red_for_episodes_longer_than_the_models_positions(repository: Path) -> None:
    said = red(repository, "policy.rope_scaling=null")
    assert "rl.limits.max_prompt_tokens + max_response_tokens: found '74,752'" in said
    assert "at most the model's 40,960 positions" in said


def test_red_without_a_sandbox(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as where it is not installed
    said = red(repository, "sandbox=ray")
    assert "runtime.sandbox" in said
    assert "expected runtime.sandbox ray of tier B or better" in said


def test_red_where_the_start_script_starts_no_server(repository: Path) -> None:
    (repository / "conf/launch/vllm.sh").write_text("echo no such program\nexit 3\n")
    said = red(repository)
    assert "conf/launch/vllm.sh: found no server at http://127.0.0.1:" in said
    assert "exit status 3" in said
    assert "no such program" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "--served-model-name policy", "--served-model-name other",
            "conf/launch/vllm.sh --served-model-name: found 'other', expected 'policy'",
        ),
        ('"$model"', "models/other", "conf/launch/vllm.sh"),
        ('"$@"', '"$@" --scripted-fault keeps_weights', "nats apart, at most"),
        ('"$@"', '"$@" --scripted-fault sees_no_folder', "and see /"),
        ("VLLM_SERVER_DEV_MODE=1", "VLLM_SERVER_DEV_MODE=0", "VLLM_SERVER_DEV_MODE=1"),
        ("--enable-prompt-tokens-details", "", "--enable-prompt-tokens-details"),
    ],
)  # fmt: skip
def test_red_for_servers_that_do_not_serve_the_policy(
    repository: Path, old: str, new: str, said: str
) -> None:
    """Another model, old weights, a folder that is not shared, options that training needs."""
    edit(repository / "conf/launch/vllm.sh", old, new)
    found = red(repository)
    assert found.startswith("conf/launch/vllm.sh")
    assert said in found
    assert "found" in found
    assert "expected" in found


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """A folder that takes 8 MB, or where nothing may be mounted, no more than that in one file."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(place)]
    if subprocess.run(mount, capture_output=True).returncode == 0:
        yield place
        subprocess.run(["umount", str(place)], check=True)
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, before[1]))
    yield place
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_red_on_a_full_disk(repository: Path, small_disk: Path) -> None:
    said = red(repository, place=small_disk)
    assert str(small_disk) in said
    assert "No space left" in said or "free" in said or "File too large" in said


@pytest.mark.slow
@pytest.mark.timeout(MINUTES)
def test_red_for_a_launcher_that_starts_fewer_processes_than_told(repository: Path) -> None:
    launch = "accelerate launch --cpu --num_processes 8"
    overrides = (f"runtime.sft_launch={launch}", "sft.context_parallel=1", "runtime.rl_launch=")
    params = composed(repository, *PAPER, *overrides)
    said = r"runtime\.sft_launch.*started 1 of 2 processes.*torchrun"
    with pytest.raises(AstraError, match=said):
        rehearse(repository, params, None, repository.parent, print)


# --- green


@pytest.mark.long
@pytest.mark.timeout(MINUTES)
@pytest.mark.parametrize(
    ("policy", "sharding"),
    [("qwen3_14b", "ddp"), ("qwen3_14b", "fsdp2"), ("qwen3_32b", "fsdp2"), ("qwen3_14b", "zero3")],
)
def test_green_for_the_papers_policies(repository: Path, policy: str, sharding: str) -> None:
    if sharding == "zero3":
        pytest.importorskip(
            "deepspeed", reason="deepspeed is not installed: pip install -e '.[gpu]'"
        )
    told: list[str] = []
    params = composed(repository, "scale=paper", f"policy={policy}")
    place = repository.parent / "place"
    place.mkdir()
    rehearse(repository, params, Sharding(sharding), place, told.append)
    assert not list(place.iterdir()), "a green rehearsal leaves nothing"
    proved = [line for line in told if line.startswith("proved: ")]
    assert any(line.startswith(f"proved: rl under {sharding}") for line in proved)
    assert any("stand-in" in line for line in proved)
    assert any(line.startswith("only hardware can show: ") for line in told)
