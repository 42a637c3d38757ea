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
from pathlib import Path

from astra.sandbox.zygote_kernel import die_with_parent
from astra.train.distributed import world_size
from astra.train.errors import TrainingError

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


def load_device(device: str) -> str:
    """Where to load a policy: on the CPU if the launcher will spread its weights over devices."""
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        return "cpu"
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") != "true":
        return device
    file = os.environ.get("ACCELERATE_DEEPSPEED_CONFIG_FILE", "")
    if file and file != "none":
        stage = json.loads(Path(file).read_text())["zero_optimization"]["stage"]
    else:
        stage = int(os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2"))
    return "cpu" if stage == 3 else device
