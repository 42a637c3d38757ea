"""What a training process knows of its siblings. One process is rank 0 of a world of one."""

from __future__ import annotations

import os
from typing import Any

from astra.train.errors import TrainingError


def world_size() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """This process's number among them, from 0."""
    return int(os.environ.get("RANK", "0"))


def is_main() -> bool:
    """Whether this process writes what all share: checkpoints' state, models, metrics, plots."""
    return rank() == 0


def barrier() -> None:
    """Wait for every rank, once the process group exists."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.barrier()


def is_sharded(trainer: Any) -> bool:
    """Whether no rank holds the whole model: ZeRO-3 or FSDP."""
    if trainer.is_fsdp_enabled:
        return True
    plugin = trainer.accelerator.state.deepspeed_plugin if trainer.is_deepspeed_enabled else None
    return plugin is not None and plugin.zero_stage == 3


def gathered_weights(trainer: Any) -> dict[str, Any] | None:
    """The whole model's weights where they are spread over ranks (collective), else None."""
    if not is_sharded(trainer):
        return None
    return trainer.accelerator.get_state_dict(trainer.model_wrapped)


def accumulation_steps(
    batch: int, micro: int, block: str, context_parallel: int = 1, processes: int | None = None
) -> int:
    """Forward passes of one device per optimizer step; TrainingError where the batch is uneven.

    ``processes``: how many train together; None: those that do.
    """
    count = world_size() if processes is None else processes
    replicas, left = divmod(count, context_parallel)
    if left or not replicas:
        raise TrainingError(
            f"{block}: {count} processes cannot share sequences by {context_parallel}; "
            "start a multiple of context_parallel"
        )
    steps, left = divmod(batch, micro * replicas)
    if left or not steps:
        raise TrainingError(
            f"{block}: a batch of {batch} is no multiple of micro_batch_size {micro} times "
            f"{replicas} replicas; set {block}.micro_batch_size or the batch "
            f"({'rl.groups x rl.group_size' if block == 'rl' else f'{block}.batch_size'}) so that "
            "it is, or start another number of processes"
        )
    return steps
