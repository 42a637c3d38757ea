"""Training stages on several devices or nodes: the stage starts its own processes.

DVC runs ``python stages/rl.py`` wherever that is; ``runtime.rl_launch``, which no stage tracks, or
the environment variable ASTRA_LAUNCH says what to run it under. So the lock stays the same on
one device and on forty.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from enum import StrEnum
from pathlib import Path

from astra.rollout.chat import Dtype
from astra.sandbox.zygote_kernel import die_with_parent
from astra.train.distributed import world_size
from astra.train.errors import TrainingError
from astra.train.lora import LoRAConfig

LAUNCH, LAUNCHED = "ASTRA_LAUNCH", "ASTRA_LAUNCHED"
_PROCESSES = re.compile(r"--(?:num_processes|nproc[_-]per[_-]node)[= ](\d+)")


def start_processes(launch: str, stage_file: str) -> None:
    """Replace this process by ``launch`` with the stage; returns where that was done already.

    Raises TrainingError where the command does not exist, or started fewer processes than it
    was told to: ``accelerate launch --cpu`` runs one and says nothing.
    """
    launch = os.environ.get(LAUNCH) or launch
    if not launch:
        return
    if os.environ.get(LAUNCHED):
        die_with_parent()  # else a killed launcher's processes would go on writing checkpoints
        wanted = _PROCESSES.search(launch)
        if wanted and world_size() < int(wanted[1]):
            raise TrainingError(
                f"`{launch}` started {world_size()} of {wanted[1]} processes; on CPU use "
                "`torchrun --standalone --nproc_per_node N`"
            )
        return
    command = [*shlex.split(launch), stage_file]
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(command[0], command, {**os.environ, LAUNCHED: "1"})
    except OSError as error:
        raise TrainingError(f"the launch command {launch!r} cannot be started: {error}") from error


class Sharding(StrEnum):
    """How a launch command spreads the state of training over devices."""

    DDP = "ddp"
    """Not at all; one device alone too."""
    ZERO2 = "zero2"
    ZERO3 = "zero3"
    FSDP2 = "fsdp2"

    @property
    def spreads_weights(self) -> bool:
        """Whether no device holds the whole model."""
        return self in (Sharding.ZERO3, Sharding.FSDP2)


def launched_sharding() -> Sharding:
    """What accelerate's launcher told this process, by the environment, of how it shards."""
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        return Sharding.FSDP2
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") != "true":
        return Sharding.DDP
    file = os.environ.get("ACCELERATE_DEEPSPEED_CONFIG_FILE", "")
    if file and file != "none":
        stage = json.loads(Path(file).read_text())["zero_optimization"]["stage"]
    else:
        stage = int(os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2"))
    return Sharding.ZERO3 if stage == 3 else Sharding.ZERO2


def load_device(device: str) -> str:
    """Where to load a policy: on the CPU if the launcher will spread its weights over devices."""
    return "cpu" if launched_sharding().spreads_weights else device


def weights_dtype(dtype: Dtype, lora: LoRAConfig) -> Dtype:
    """The type to load weights in that train, for a policy that computes in ``dtype``.

    It is float32: a bfloat16 weight of 0.02 moves in steps of 1.2e-4, to which an optimizer's
    steps of 1e-5 and less are nothing. Three things need no such weights, and take the policy's
    own: DeepSpeed, whose optimizer makes float32 masters of what it is given; FSDP2, which
    accelerate has do the same to its shards; and adapters, which are float32 themselves.
    """
    own_masters = launched_sharding() != Sharding.DDP
    return dtype if own_masters or lora.rank else "float32"
