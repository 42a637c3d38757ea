"""How torch runs here: device, threads, seeds."""

from __future__ import annotations

import os

from astra.errors import AstraError
from astra.settings import RuntimeConfig


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
    if runtime.device == "cuda" and not torch.cuda.is_available():
        raise DeviceError("runtime.device is cuda, but torch sees no GPU; set it to auto or cpu")
    if runtime.device == "cpu" or not torch.cuda.is_available():
        return "cpu"
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(local_rank)
    return f"cuda:{local_rank}"
