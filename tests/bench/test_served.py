"""Checkpoints put behind endpoints: a process of our own, a running server, the floor."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from serving_chat import ask, chat

from astra.bench.harness.protocol import ModelEndpoint, SuiteError
from astra.bench.harness.served import (
    RunningEndpoints,
    ServedCheckpoints,
    WithFloor,
    identity,
    served,
)
from astra.rollout.chat import PolicyConfig
from astra.serving.main import ServeConfig, ServingOptions
from astra.settings import RuntimeConfig
from astra.tracking.mlflow import file_digest
from configs import block


def test_a_served_checkpoint_is_a_process_that_ends(root: Path) -> None:
    policy = PolicyConfig.saved(str(root / "policies/tiny"), "float32")
    config = ServeConfig(policy=policy, name="tiny", **block("bench")["serving"])
    with ServedCheckpoints({"base": config})("base") as subject:
        assert subject.checkpoint == "base"
        assert (
            subject.identity
            == identity(config)
            != identity(config.model_copy(update={"new_tokens": 5}))
        )
        url = subject.endpoint.base_url
        body = {**chat("hello", max_tokens=3), "model": subject.endpoint.model}
        assert ask(url, body)[0] == 200
        pids = _children()
        assert pids
    for pid in pids:
        assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(OSError, match="refused"):
        ask(url, body)
    missing = config.model_copy(update={"policy": PolicyConfig.saved("models/none", "float32")})
    with pytest.raises(SuiteError, match="no such folder"), served(missing):
        pass


def test_options_of_vllm_are_part_of_what_answers_depend_on(root: Path) -> None:
    """Else the journal would give the scores of another configuration."""
    policy = PolicyConfig.saved(str(root / "policies/tiny"), "float32")
    plain = ServeConfig(policy=policy, name="tiny", engine="vllm", rows=1, keep_mb=0)
    fp8 = plain.model_copy(update={"vllm_args": ("--quantization", "fp8")})
    elsewhere = plain.model_copy(update={"vllm": "/opt/vllm/bin/vllm", "name": "other"})
    local = plain.model_copy(update={"engine": "local"})
    unused = local.model_copy(update={"vllm_args": fp8.vllm_args})
    assert len({identity(one) for one in (plain, fp8, local)}) == 3
    assert identity(elsewhere) == identity(plain)
    assert identity(unused) == identity(local)
    before = plain.model_dump_json(include={"policy", "engine", "context", "new_tokens"})
    weights = file_digest(Path(policy.path))
    expected = hashlib.sha256(f"{weights} {before}".encode()).hexdigest()
    assert identity(plain) == expected, "what was played without options is found again"


def test_the_floor_is_beside_checkpoints_and_running_endpoints(root: Path) -> None:
    running = ModelEndpoint(base_url="https://models.example/v1", model="closed", api_key_env="KEY")
    serving_all = WithFloor(RunningEndpoints({"closed": running}))
    with serving_all("closed") as subject:
        assert subject.endpoint == running
    with serving_all("floor") as subject:
        body = {**chat("hello"), "model": subject.endpoint.model}
        reply = ask(subject.endpoint.base_url, body)[1]
    assert reply["choices"][0]["message"]["content"] == "Done."
    assert subject.checkpoint == "floor"

    base = PolicyConfig.saved(str(root / "policies/tiny"), "bfloat16")
    options = ServingOptions(engine="local", rows=3, keep_mb=1024, new_tokens=64)
    runtime = RuntimeConfig(device="cpu", threads=1)
    made = ServedCheckpoints.of(base, {"rl": Path("models/rl")}, options, runtime)
    assert made.configs["rl"].policy == PolicyConfig.saved("models/rl", "bfloat16")
    assert made.configs["base"].policy == base
    assert {one.rows for one in made.configs.values()} == {3}


def _children() -> list[int]:
    """Processes that this one started and that serve."""
    listed = subprocess.run(
        ["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())],
        capture_output=True, text=True, check=True, timeout=20,
    )  # fmt: skip
    return [
        int(line.split()[0]) for line in listed.stdout.splitlines() if "astra.serving.main" in line
    ]
