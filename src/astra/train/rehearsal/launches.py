"""The preset's launch commands and parameters, scaled to a few CPU processes."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from astra.train.distributed import accumulation_steps
from astra.train.errors import TrainingError
from astra.train.launch import Sharding
from astra.train.rehearsal.errors import RehearsalError

RANK = "astra.train.rehearsal.rank"
RANKS = 2
STEPS = 2
"""One step before the kill, one after the resume."""
POLICY = "policies/rehearsed"
"""The shrunken policy's folder in the rehearsal's workspace."""
SHRUNK = {
    "sft": {"max_tokens": 1024, "micro_batch_size": 2},
    "rl": {"groups": 2, "group_size": 2, "micro_batch_size": 2, "max_rounds": 4,
           "dev_arenas": 2, "trace_rollouts": 1},
    "limits": {"max_turns": 4, "max_calls": 8, "max_parallel_calls": 4, "max_result_chars": 400,
               "max_turn_tokens": 192, "max_prompt_tokens": 768, "max_response_tokens": 448},
}  # fmt: skip
"""The most that a rehearsal takes of what costs time; smaller values of the preset stay."""
MOST_EPISODE_S = 300.0
_COUNT = re.compile(r"--(?:num_processes|nproc[_-]per[_-]node)$")


@dataclass(frozen=True)
class StageLaunch:
    """How a preset starts a stage."""

    command: tuple[str, ...]
    """Empty: one process, without a launcher."""
    processes: int
    """What it says it starts, on all machines."""
    sharding: Sharding
    config: str = ""
    """Its file of conf/accelerate; empty: none."""

    @property
    def ranks(self) -> int:
        """Processes of the rehearsal. DeepSpeed knows no backend for several on CPUs."""
        zero = self.sharding in (Sharding.ZERO2, Sharding.ZERO3)
        return 1 if zero else min(RANKS, self.processes)

    def rehearsed(self) -> str:
        """The same command for the ranks of the rehearsal, each of which is ``rank.py``."""
        if not self.command:
            return ""
        words = list(self.command)
        for at, word in enumerate(words):
            name, equals, _ = word.partition("=")
            if _COUNT.match(name):
                if equals:
                    words[at] = f"{name}={self.ranks}"
                else:
                    words[at + 1] = str(self.ranks)
        counted = any(_COUNT.match(word.partition("=")[0]) for word in words)
        if words[:2] == ["accelerate", "launch"] and not counted:
            words += ["--num_processes", str(self.ranks)]
        return shlex.join([*words, "-m", RANK])


def read_launch(stage: str, text: str, sharding: Sharding | None, root: Path) -> StageLaunch:
    """How ``runtime.<stage>_launch`` starts a stage, or accelerate with the file of ``sharding``.

    Raises RehearsalError where its configuration cannot be read.
    """
    if sharding is not None:
        text = f"accelerate launch --config_file conf/accelerate/{sharding}.yaml"
    words = shlex.split(text)
    if not words:
        return StageLaunch((), 1, Sharding.DDP)
    options = dict(pairwise(words))
    options |= {k: v for k, equals, v in (word.partition("=") for word in words) if equals}
    config, processes = options.get("--config_file", ""), 1
    if words[0].endswith("node.sh"):
        config = os.environ.get("ACCELERATE", "conf/accelerate/zero3.yaml")
        processes = int(os.environ.get("MACHINES", "1")) * int(os.environ.get("GPUS", "8"))
    document: Mapping[str, Any] = {}
    if config:
        try:
            document = yaml.safe_load((root / config).read_text())
        except (OSError, yaml.YAMLError) as error:
            raise RehearsalError(
                f"runtime.{stage}_launch: {text!r} names --config_file {config}, found nothing to "
                f"read there ({error}), expected one of conf/accelerate"
            ) from error
        if not words[0].endswith("node.sh"):
            processes = int(document.get("num_processes", 1))
    for name, value in options.items():
        if _COUNT.match(name):
            processes = int(value)
    return StageLaunch(tuple(words), processes, _sharding(document, root), config)


def _sharding(document: Mapping[str, Any], root: Path) -> Sharding:
    kind = document.get("distributed_type")
    if kind == "FSDP":
        return Sharding.FSDP2
    if kind != "DEEPSPEED":
        return Sharding.DDP
    file = root / document["deepspeed_config"]["deepspeed_config_file"]
    stage = json.loads(file.read_text())["zero_optimization"]["stage"]
    return Sharding.ZERO3 if stage == 3 else Sharding.ZERO2


def check_batches(params: Mapping[str, Any], launches: Mapping[str, StageLaunch]) -> None:
    """Raises RehearsalError where a batch does not divide over the preset's own processes."""
    sft, rl = params["sft"], params["rl"]
    for stage, setting, batch, parallel in (
        ("sft", "sft.batch_size", sft["batch_size"], sft["context_parallel"]),
        ("rl", "rl.groups x rl.group_size", rl["groups"] * rl["group_size"], 1),
    ):
        processes, micro = launches[stage].processes, params[stage]["micro_batch_size"]
        try:
            accumulation_steps(batch, micro, stage, parallel, processes)
        except TrainingError as error:
            raise RehearsalError(
                f"{setting}: found {batch}, expected a multiple of "
                f"{max(1, processes // parallel) * micro} (micro_batch_size {micro} x {processes} "
                f"processes / {parallel} that share a sequence); {error}"
            ) from error


def scaled(
    params: Mapping[str, Any], launches: Mapping[str, StageLaunch], servers: tuple[str, ...]
) -> dict[str, Any]:
    """The blocks that the training stages read, with what would take long made small."""
    return {
        "sft": _scaled_sft(params["sft"], launches["sft"].ranks),
        "rl": _scaled_rl(params["rl"]),
        "runtime": {
            **params["runtime"], "device": "cpu", "threads": 1, "tracking_uri": None,
            "sft_launch": launches["sft"].rehearsed(), "rl_launch": launches["rl"].rehearsed(),
            "rollout_servers": list(servers),
        },
    }  # fmt: skip


def _at_most(values: Mapping[str, Any], most: Mapping[str, int]) -> dict[str, Any]:
    return {**values, **{name: min(values[name], limit) for name, limit in most.items()}}


def _saving(values: Mapping[str, Any]) -> dict[str, Any]:
    """A checkpoint after each step, so that one can be resumed from."""
    return {**values, "save_steps": 1, "keep_checkpoints": max(2, values["keep_checkpoints"])}


def _scaled_sft(values: Mapping[str, Any], ranks: int) -> dict[str, Any]:
    small = _at_most(_saving(values), SHRUNK["sft"])
    policy = {**values["policy"], "path": POLICY, "revision": None}
    return small | {
        "policy": policy, "epochs": 100.0, "max_steps": STEPS, "eval_steps": 1, "patience": 0,
        "batch_size": small["micro_batch_size"] * ranks, "context_parallel": 1,
    }  # fmt: skip


def _scaled_rl(values: Mapping[str, Any]) -> dict[str, Any]:
    small = _at_most(_saving(values), SHRUNK["rl"])
    engine = {**values["engine"]}
    if "transfer" in engine:
        engine["transfer"] = "folder"
    if "timeout_s" in engine:
        engine["timeout_s"] = min(engine["timeout_s"] or MOST_EPISODE_S, MOST_EPISODE_S)
    phases = [{**phase, "steps": 1, "band": None} for phase in values["schedule"]]
    return small | {
        "steps": STEPS, "schedule": phases, "dev_every": 1, "trace_every": 1, "kinds": None,
        "engine": engine, "limits": _at_most(values["limits"], SHRUNK["limits"]),
    }  # fmt: skip
