from __future__ import annotations

import pytest
import torch

from astra.rollout.device import DeviceError, prepare_torch
from astra.settings import RuntimeConfig


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
