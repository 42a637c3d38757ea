"""Checkpoints are few, survive a full disk, and become policies that others load."""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from training_world import make_sample
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from astra.cli.train import train_app
from astra.rollout.chat import Dtype, LoadedPolicy, PolicyConfig, load_policy
from astra.tracking.mlflow import Run
from astra.train.checkpoints import (
    STATE_FILE,
    checkpoint_bytes,
    resume_point,
    save_policy,
    served_weights,
)
from astra.train.errors import TrainingError
from astra.train.exporting import export_checkpoint
from astra.train.launch import Sharding, launched_sharding, weights_dtype
from astra.train.lora import add_adapters
from astra.train.sft import Encoded, encode_samples, train_sft
from configs import sft_config

NO_RUN = Run(None, "", "")


@pytest.fixture
def policy() -> LoadedPolicy:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return load_policy(PolicyConfig.saved("policies/tiny", "float32"))


def fine_tune(policy: LoadedPolicy, folder: Path, **options: Any) -> None:
    settings = {
        "max_steps": 3, "epochs": 9, "batch_size": 2, "micro_batch_size": 2, "save_steps": 1,
        "learning_rate": 1e-3,
    }  # fmt: skip
    train = encode_samples([make_sample(seed) for seed in range(6)], policy.codec, 512)
    train_sft(policy, train, Encoded(), sft_config(**(settings | options)), folder, NO_RUN)


@contextmanager
def files_of_at_most(size: int) -> Generator[None]:
    """Writing beyond ``size`` bytes of a file fails, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_a_disk_that_takes_no_checkpoint_loses_nothing_older(
    policy: LoadedPolicy, tmp_path: Path
) -> None:
    fine_tune(policy, tmp_path, max_steps=1)
    older = digests(tmp_path / "checkpoint-1")
    weights = (tmp_path / "checkpoint-1" / "model.safetensors").stat().st_size
    # Weights fit, the optimizer's state does not.
    with files_of_at_most(weights + 4096), pytest.raises(TrainingError) as raised:
        fine_tune(policy, tmp_path, max_steps=2)
    said = str(raised.value)
    assert f"checkpoint {tmp_path / 'checkpoint-2'} cannot be written" in said
    assert "bytes were written" in said
    assert "are free on the disk" in said
    assert digests(tmp_path / "checkpoint-1") == older
    assert resume_point(tmp_path) == str(tmp_path / "checkpoint-1"), "the torn one is gone"


def test_a_run_that_has_no_room_for_a_checkpoint_does_not_begin(
    policy: LoadedPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    needed = checkpoint_bytes(policy.model)
    with pytest.raises(TrainingError, match=f"takes {needed:,} bytes .* 1,000 are free"):
        fine_tune(policy, tmp_path)
    assert not list(tmp_path.glob("checkpoint-*"))


def test_a_checkpoint_takes_what_is_said(policy: LoadedPolicy, tmp_path: Path) -> None:
    fine_tune(policy, tmp_path, max_steps=1)
    found = sum(
        (tmp_path / "checkpoint-1" / name).stat().st_size
        for name in ("model.safetensors", "optimizer.pt")
    )
    assert checkpoint_bytes(policy.model) == pytest.approx(found, rel=0.02)


def test_a_policy_that_cannot_be_written_leaves_the_one_before(
    policy: LoadedPolicy, tmp_path: Path
) -> None:
    folder = tmp_path / "models" / "sft"
    save_policy(policy.model, policy.codec.tokenizer, folder)
    before = digests(folder)
    with (
        files_of_at_most(100_000),
        pytest.raises(TrainingError, match=r"cannot be written to .*models/sft.* bytes were writ"),
    ):
        save_policy(policy.model, policy.codec.tokenizer, folder)
    assert digests(folder) == before
    assert [path.name for path in folder.parent.iterdir()] == ["sft"]


def test_older_checkpoints_go_once_a_new_one_is_whole(policy: LoadedPolicy, tmp_path: Path) -> None:
    fine_tune(policy, tmp_path, keep_checkpoints=2, keep_optimizer_states=1)
    left = {path.name: (path / "optimizer.pt").exists() for path in tmp_path.glob("checkpoint-*")}
    assert left == {"checkpoint-2": False, "checkpoint-3": True}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_saved_has_the_policys_type(
    policy: LoadedPolicy, tmp_path: Path, dtype: Dtype
) -> None:
    save_policy(
        policy.model, policy.codec.tokenizer, tmp_path / "policy",
        served_weights(policy.model, None, dtype),
    )  # fmt: skip
    assert json.loads((tmp_path / "policy" / "config.json").read_text())["dtype"] == dtype
    again = load_policy(PolicyConfig.saved(str(tmp_path / "policy"), dtype)).model
    for name, weight in policy.model.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight.to(getattr(torch, dtype)))
    if dtype == "float32":
        save_policy(policy.model, policy.codec.tokenizer, tmp_path / "plain")
        assert digests(tmp_path / "plain") == digests(tmp_path / "policy")


def test_a_checkpoint_is_exported_as_a_policy(policy: LoadedPolicy, tmp_path: Path) -> None:
    fine_tune(policy, tmp_path / "run", max_steps=1)
    checkpoint, out = tmp_path / "run" / "checkpoint-1", tmp_path / "out"
    done = CliRunner().invoke(train_app, ["export", str(checkpoint), str(out)])
    assert done.exit_code == 0, done.exception
    made: Any = AutoModelForCausalLM.from_pretrained(out)
    assert made.dtype == torch.bfloat16
    for name, weight in policy.model.state_dict().items():
        assert torch.equal(made.state_dict()[name], weight.bfloat16())
    assert load_policy(PolicyConfig.saved(str(out), "bfloat16")).codec.template == "compact"


def test_shards_are_put_together(policy: LoadedPolicy, tmp_path: Path) -> None:
    """A checkpoint as FSDP2 writes it: shards, and what its callback puts beside them."""
    import torch.distributed.checkpoint as dcp

    checkpoint = tmp_path / "checkpoint-1"
    checkpoint.mkdir()
    dcp.save(
        {"model": policy.model.state_dict()}, checkpoint_id=checkpoint / "pytorch_model_fsdp_0"
    )
    policy.model.config.save_pretrained(checkpoint)
    policy.codec.tokenizer.save_pretrained(checkpoint)
    (checkpoint / STATE_FILE).write_text("{}")
    export_checkpoint(checkpoint, tmp_path / "out", "float32")
    again = load_policy(PolicyConfig.saved(str(tmp_path / "out"), "float32")).model
    for name, weight in policy.model.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight)


def test_adapters_are_merged(policy: LoadedPolicy, tmp_path: Path) -> None:
    fine_tune(policy, tmp_path / "run", max_steps=1, lora={"rank": 4})
    export_checkpoint(tmp_path / "run" / "checkpoint-1", tmp_path / "out", "float32")
    again = load_policy(PolicyConfig.saved(str(tmp_path / "out"), "float32")).model
    for name, weight in policy.model.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], weight)
    export_checkpoint(tmp_path / "run" / "checkpoint-1", tmp_path / "half", "bfloat16")
    half = load_policy(PolicyConfig.saved(str(tmp_path / "half"), "bfloat16")).model.state_dict()
    exact = policy.model.state_dict()
    away = {name for name in exact if not torch.equal(half[name], exact[name].bfloat16())}
    assert away == {name for name in exact if "_proj" in name}, "what adapters move, at random"
    for name in away:
        torch.testing.assert_close(half[name].float(), exact[name], rtol=1 / 128, atol=0)


def test_a_torn_checkpoint_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=f"no whole checkpoint: it has no {STATE_FILE}"):
        export_checkpoint(tmp_path, tmp_path / "out", "bfloat16")


def test_who_keeps_float32_weights(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, adapters = sft_config().lora, sft_config(lora={"rank": 4}).lora
    assert launched_sharding() == Sharding.DDP
    assert weights_dtype("bfloat16", whole) == weights_dtype("float32", whole) == "float32"
    assert weights_dtype("bfloat16", adapters) == "bfloat16", "the adapters are float32"
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    for stage in (2, 3):
        file = root / "conf" / "deepspeed" / f"zero{stage}.json"
        monkeypatch.setenv("ACCELERATE_DEEPSPEED_CONFIG_FILE", str(file))
        assert launched_sharding() == f"zero{stage}"
        assert weights_dtype("bfloat16", whole) == "bfloat16", "its optimizer keeps masters"
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    assert launched_sharding() == Sharding.FSDP2
    assert weights_dtype("bfloat16", whole) == "bfloat16", "accelerate raises its shards"


def test_adapters_of_a_bfloat16_policy_are_float32() -> None:
    one = load_policy(PolicyConfig.saved("policies/tiny", "bfloat16"))
    add_adapters(one, sft_config(lora={"rank": 4}).lora)
    kinds = {weight.requires_grad: weight.dtype for weight in one.model.parameters()}
    assert kinds == {True: torch.float32, False: torch.bfloat16}
