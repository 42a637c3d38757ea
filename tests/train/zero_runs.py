"""SFT and RL under DeepSpeed in one CPU process: run by test_zero.py through accelerate.

RL with servers trains a policy whose head has weights of its own, as the paper's have. Forks a
child per run, as one process holds one DeepSpeed configuration. ``plain`` runs without DeepSpeed,
``torn`` is a run whose last checkpoint is taken away, which then trains again. Prints JSON: what
every run ended with, and what its newest checkpoints hold.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from kill_points import child
from served import half_solved, scorer_of
from test_grpo import ScriptedRoller
from training_world import make_arena, make_sample

from astra.records.qa import Split
from astra.rollout.chat import LoadedPolicy, PolicyConfig, load_policy
from astra.rollout.scripted_server import ScriptedVLLM
from astra.sandbox.local import LocalSandbox
from astra.tracking.mlflow import Run
from astra.train import rl
from astra.train.checkpoints import save_policy
from astra.train.errors import TrainingError
from astra.train.launch import load_device
from astra.train.sft import Encoded, encode_samples, train_sft
from configs import engine_options, rl_config, sft_config

POLICY = "policies/tiny"
NO_RUN = Run(None, "", "")


def started() -> LoadedPolicy:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return load_policy(PolicyConfig.saved(POLICY, "float32"), load_device("cpu"))


def untied(policy: LoadedPolicy) -> LoadedPolicy:
    """The same policy, its head's weights no longer those of its embeddings."""
    model = policy.model
    config = copy.deepcopy(model.config)
    config.tie_word_embeddings = False
    own = type(model)(config)
    own.load_state_dict(model.state_dict())
    return replace(policy, model=own.to(model.dtype))


def saved(policy: LoadedPolicy, folder: Path, weights: dict[str, Any] | None) -> dict[str, Any]:
    """What a stage does at its end."""
    save_policy(policy.model, policy.codec.tokenizer, folder, weights)
    return {"gathered": weights is not None}


def run_sft(folder: Path) -> dict[str, Any]:
    policy = started()
    config = sft_config(
        max_steps=4, epochs=9, batch_size=4, micro_batch_size=2, learning_rate=1e-3, save_steps=2,
        keep_optimizer_states=9,
    )  # fmt: skip
    train = encode_samples([make_sample(seed) for seed in range(8)], policy.codec, 512)
    result = train_sft(policy, train, Encoded(), config, folder / "run", NO_RUN)
    made = saved(policy, folder / "policy", result.weights)
    return made | {"steps": result.steps, "losses": result.curves.values("loss")}


def run_rl(folder: Path) -> dict[str, Any]:
    policy = started()
    config = rl_config(
        groups=2, group_size=2, micro_batch_size=2, learning_rate=1e-3, steps=2, save_steps=1,
        keep_optimizer_states=9,
    )  # fmt: skip
    rl.GroupRoller = lambda driver, config: ScriptedRoller(config.group_size)  # type: ignore
    arenas = rl.Arenas(train=[make_arena(seed) for seed in range(4)])
    sandbox: Any = None
    try:
        result = rl.train_rl(policy, arenas, config, sandbox, folder / "run", NO_RUN)
    except TrainingError as error:
        return {"refused": str(error)}
    made = saved(policy, folder / "policy", result.weights)
    return made | {"steps": result.steps, "losses": result.curves.values("loss")}


def run_served(folder: Path) -> dict[str, Any]:
    """RL with a rollout server and development arenas: weights that ranks share are handed over
    before the first step, before every other one, and at the end."""
    policy, other = untied(started()), untied(started())
    config = rl_config(
        groups=2, group_size=2, micro_batch_size=2, learning_rate=1e-3, steps=2, save_steps=1,
        keep_optimizer_states=9, dev_every=1, max_rounds=1, engine=engine_options("vllm"),
        importance={"type": "truncated", "cap": 2.0},
    )  # fmt: skip
    arenas = rl.Arenas(
        train=[make_arena(seed) for seed in range(4)],
        dev=[make_arena(seed, Split.DEV) for seed in range(3)],
    )
    reply = half_solved(policy.codec, [*arenas.train, *arenas.dev])
    load = scorer_of(other)
    with LocalSandbox() as box, ScriptedVLLM(reply, load=load, kv_tokens=400_000) as server:
        result = rl.train_rl(policy, arenas, config, box, folder / "run", NO_RUN, (server.url,))
        taken = [body["kwargs"]["weights_path"] for _, body in server.posted if body]
    made = saved(policy, folder / "policy", result.weights)
    return made | {
        "steps": result.steps,
        "losses": result.curves.values("loss"),
        "taken": [Path(path).name for path in taken],
        "dev": result.dev,
        "rewards": result.curves.values("train_reward"),
        "faults": result.faults,
    }


def finish(work: Callable[[Path], dict[str, Any]], folder: Path, deepspeed: bool) -> dict[str, Any]:
    """``work`` in a child; what it returned, and the files of its last checkpoint."""

    def whole() -> None:
        if not deepspeed:
            for name in [name for name in os.environ if name.startswith("ACCELERATE_")]:
                del os.environ[name]
            os.environ["ACCELERATE_USE_CPU"] = "1"
        # Each run is a group of its own, not the one that the launcher holds open.
        os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            os.environ["MASTER_PORT"] = str(free.getsockname()[1])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "made.json").write_text(json.dumps(work(folder)))

    assert child(whole) == 0, folder
    made = json.loads((folder / "made.json").read_text())
    checkpoints = sorted((folder / "run").glob("checkpoint-*"))
    made["files"] = sorted(path.name for path in checkpoints[-1].iterdir()) if checkpoints else []
    return made


def difference(one: Path, other: Path) -> float:
    """The largest difference of any weight of two saved policies."""
    a, b = (
        load_policy(PolicyConfig.saved(str(path), "float32")).model.state_dict()
        for path in (one, other)
    )
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).abs().max()) for name in a)


def main(root: Path) -> None:
    report: dict[str, Any] = {}
    for name, work in (("sft", run_sft), ("rl", run_rl), ("served", run_served)):
        whole, plain, torn = (root / name / kind for kind in ("whole", "plain", "torn"))
        found: dict[str, Any] = {"whole": finish(work, whole, deepspeed=True)}
        report[name] = found
        if "refused" in found["whole"]:
            continue
        found["plain"] = finish(work, plain, deepspeed=False)
        shutil.copytree(whole / "run", torn / "run")
        newest = max((torn / "run").glob("checkpoint-*"), key=lambda path: int(path.name[11:]))
        shutil.rmtree(newest)
        found["torn"] = finish(work, torn, deepspeed=True)
        start = Path(POLICY)
        found["from_start"] = difference(whole / "policy", start)
        found["from_plain"] = difference(whole / "policy", plain / "policy")
        found["from_torn"] = difference(whole / "policy", torn / "policy")
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
