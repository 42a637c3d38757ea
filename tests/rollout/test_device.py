from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from astra.rollout.device import DeviceError, prepare_torch
from astra.settings import RuntimeConfig


@pytest.fixture(autouse=True)
def _visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")


def test_seed_and_threads_are_set() -> None:
    before = torch.get_num_threads()
    try:
        assert prepare_torch(RuntimeConfig(threads=1, device="cpu"), 7) == "cpu"
        first = torch.rand(3)
        prepare_torch(RuntimeConfig(threads=1, device="cpu"), 7)
        assert torch.equal(torch.rand(3), first)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_a_gpu_that_is_not_there_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert prepare_torch(RuntimeConfig(threads=1), 0) == "cpu"
    with pytest.raises(DeviceError, match=r"runtime\.device"):
        prepare_torch(RuntimeConfig(threads=1, device="cuda"), 0)


def test_a_process_more_than_gpus_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(DeviceError, match=r"process 1 has no GPU .* sees 1; .*launch command"):
        prepare_torch(RuntimeConfig(threads=1), 0)


def test_cpu_hides_the_gpus_from_the_trainers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # as if asked before
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    assert prepare_torch(RuntimeConfig(threads=1, device="cpu"), 0) == "cpu"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


FAULTS = """
import resource, sys, torch
from astra.rollout.device import keep_freed_memory
torch.set_num_threads(1)
assert sys.argv[1] == "default" or keep_freed_memory()
for _ in range(10):  # until pieces that fit have been cut
    torch.ones(12_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    torch.ones(12_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_freed_tensors_are_not_given_back_to_the_kernel() -> None:
    def faults(mode: str) -> int:
        command = [sys.executable, "-c", FAULTS, mode]
        return int(subprocess.run(command, check=True, capture_output=True, timeout=120).stdout)

    assert faults("default") > 50, "48 MB each time, in pages of at most 2 MB"
    assert faults("kept") < 10
