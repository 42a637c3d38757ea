"""How torch runs here: device, threads, seeds, memory."""

from __future__ import annotations

import ctypes
import os

from astra.errors import AstraError
from astra.settings import RuntimeConfig

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # glibc, malloc.h
_INT_MAX = 2**31 - 1


class DeviceError(AstraError):
    """The device asked for is not there."""


def prepare_torch(runtime: RuntimeConfig, seed: int) -> str:
    """Set threads and seeds; returns this process's device. DeviceError if CUDA is asked for in
    vain."""
    import torch
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.set_num_threads(runtime.threads)
    torch.manual_seed(seed)
    if runtime.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the trainers ask torch for devices by themselves
    if runtime.device == "cuda" and not torch.cuda.is_available():
        raise DeviceError("runtime.device is cuda, but torch sees no GPU; set it to auto or cpu")
    if runtime.device == "cpu" or not torch.cuda.is_available():
        keep_freed_memory()
        return "cpu"
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if local_rank >= (visible := torch.cuda.device_count()):
        raise DeviceError(
            f"process {local_rank} has no GPU of its own, torch sees {visible}; lower the number "
            "of processes in the launch command, or set runtime.device=cpu"
        )
    torch.cuda.set_device(local_rank)
    return f"cuda:{local_rank}"


def keep_freed_memory() -> bool:
    """Have the C library keep what tensors free; whether it could (glibc only).

    By default glibc maps every large tensor anew and hands it back when freed: a quarter of a
    tiny policy's RL step on CPU was the kernel clearing pages.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return bool(mallopt and mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, _INT_MAX))
