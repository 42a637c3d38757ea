"""Trains, is killed at a named point, trains again: run by test_kills.py in a process of its own.

Imports once and forks a child per run, so that a SIGKILL takes the child alone. Prints JSON:
per stage and point, how the killed run ended and what the resumed one made; ``none`` is the run
that nothing interrupted.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from test_grpo import ScriptedRoller
from training_world import make_arena, make_sample
from transformers import Trainer
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.sft_trainer import SFTTrainer

from astra.records.environment import Arena, Trait
from astra.rollout.chat import LoadedPolicy, PolicyConfig, load_policy
from astra.tracking.mlflow import Run
from astra.train import checkpoints, rl, sft
from astra.train.curriculum import Failures, demands
from astra.train.groups import Group, seed_of
from astra.train.optimizers import MuonAdamW
from configs import rl_config, sft_config

POLICY = "policies/tiny"


def kill_at(owner: Any, name: str, count: int) -> None:
    """Die in the ``count``-th call of ``owner.name``, before it does anything."""
    original, calls = getattr(owner, name), [0]

    def dying(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    setattr(owner, name, dying)


class FailingRoller(ScriptedRoller):
    """Groups that tell their arenas apart, half of which fail at everything."""

    def roll(self, prompts: Sequence[tuple[int, Any]], seed: int) -> list[Group]:
        return [self._told(uid, arena) for uid, arena in prompts]

    def _told(self, uid: int, arena: Arena) -> Group:
        group = self._group(uid)
        own = seed_of(arena.id) % 2000
        samples = [replace(one, prompt_ids=[own, *one.prompt_ids[1:]]) for one in group.samples]
        asked = dict.fromkeys({"all", *demands(arena)}, 100)
        failed = asked if Trait.PAGES in arena.traits else {}
        return replace(group, samples=samples, failures=Failures(asked, failed))


def digest(policy: LoadedPolicy) -> str:
    total = hashlib.sha256()
    for _, parameter in sorted(policy.model.named_parameters()):
        total.update(parameter.detach().numpy().tobytes())
    return total.hexdigest()


def run_sft(folder: Path) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    policy = load_policy(PolicyConfig.saved(POLICY, "float32"))
    config = sft_config(
        max_steps=5, epochs=9, batch_size=2, micro_batch_size=2, optimizer="muon",
        learning_rate=1e-3, eval_steps=2, save_steps=2,
    )  # fmt: skip
    parts = [
        sft.encode_samples([make_sample(seed) for seed in seeds], policy.codec, 512)
        for seeds in (range(8), range(50, 52))
    ]
    result = sft.train_sft(policy, parts[0], parts[1], config, folder, Run(None, "", ""))
    return {
        "steps": result.steps,
        "weights": digest(policy),
        "curves": result.curves.points(),
        "stopped": result.stopped_early,
    }


def run_rl(folder: Path) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    policy = load_policy(PolicyConfig.saved(POLICY, "float32"))
    config = rl_config(
        groups=2, group_size=2, micro_batch_size=2, learning_rate=1e-3, save_steps=1, max_rounds=4,
        max_staleness=1,
        schedule=[{"steps": 3}, {"steps": 1},
                  {"steps": 2, "reset_optimizer": True, "refresh": True}],
    )  # fmt: skip
    rl.GroupRoller = lambda driver, config: FailingRoller(config.group_size)  # type: ignore
    traits = [(Trait.PAGES,), (Trait.TWINS,), (Trait.PAGES,), ()]
    arenas = rl.Arenas(
        train=[
            make_arena(seed).model_copy(update={"traits": held}) for seed, held in enumerate(traits)
        ]
    )
    sandbox: Any = None
    result = rl.train_rl(policy, arenas, config, sandbox, folder, Run(None, "", ""))
    return {
        "steps": result.steps,
        "weights": digest(policy),
        "curves": result.curves.points(),
        "stopped": result.stopped_early,
        "refreshed by": result.failures,
        "drawn": sorted((one.arena_id, one.weight) for one in result.curriculum),
    }


POINTS: dict[str, dict[str, Callable[[], None]]] = {
    "sft": {
        "none": lambda: None,
        "before the first checkpoint": lambda: kill_at(SFTTrainer, "training_step", 2),
        "training step": lambda: kill_at(SFTTrainer, "training_step", 4),
        "optimizer step": lambda: kill_at(MuonAdamW, "step", 4),
        "weights saved": lambda: kill_at(Trainer, "_save_optimizer_and_scheduler", 2),
        "optimizer saved": lambda: kill_at(Trainer, "_save_rng_state", 2),
        "all but sealed": lambda: kill_at(checkpoints.os, "replace", 2),
        "before pruning": lambda: kill_at(checkpoints, "optimizer_files", 1),
        "after the last step": lambda: kill_at(sft, "gathered_weights", 1),
    },
    "rl": {
        "none": lambda: None,
        "rollout": lambda: kill_at(FailingRoller, "roll", 3),
        "optimizer step": lambda: kill_at(torch.optim.AdamW, "step", 3),
        "optimizer saved": lambda: kill_at(Trainer, "_save_rng_state", 2),
        "between phases": lambda: kill_at(GRPOTrainer, "__init__", 2),
        "fresh optimizer": lambda: kill_at(GRPOTrainer, "training_step", 5),
        "after the last step": lambda: kill_at(rl, "merge_adapters", 1),
    },
}
RUNS = {"sft": run_sft, "rl": run_rl}


def child(work: Callable[[], object]) -> int:
    """Exit status of ``work`` in a forked process: 0, 1 with a traceback, or minus a signal."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def main(root: Path) -> None:
    report: dict[str, dict[str, Any]] = {}
    for stage, points in POINTS.items():
        for point, arm in points.items():
            folder = root / stage / point.replace(" ", "_")
            out = folder.with_suffix(".json")

            def killed(
                stage: str = stage, arm: Callable[[], None] = arm, at: Path = folder
            ) -> None:
                arm()
                RUNS[stage](at)

            def whole(stage: str = stage, at: Path = folder, out: Path = out) -> None:
                out.parent.mkdir(parents=True, exist_ok=True)
                out.write_text(json.dumps(RUNS[stage](at)))

            ended = child(killed) if point != "none" else -signal.SIGKILL
            again = child(whole)
            made = json.loads(out.read_text()) if again == 0 else None
            report.setdefault(stage, {})[point] = {"killed": ended, "again": again, "made": made}
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
