"""Does a small policy learn to talk with the users of worlds: SFT, RL, and more SFT instead?

    python benchmarks/world_learning.py --part start      # data, SFT, what it can do along the way
    python benchmarks/world_learning.py --part rl --seeds 0 1
    python benchmarks/world_learning.py --part control --seeds 0 1
    python benchmarks/world_learning.py --part report --seeds 0 1

The real stages run in folders of their own under ``runs/world_learning``: small-shape worlds of all
ten domains (eight variants of each training domain), their goals and conversations; SFT of the tiny
policy on those conversations; RL from there on the worlds' goals; and SFT that goes on for RL's CPU
time. RL can only begin where the start reaches some goals, so the first part tells pass@8 of the
start, and partial credit after each part of SFT: the share of the calls that a goal's own trace
makes, with those arguments. Every policy then plays all goals of the held-out domains, greedily.
What exists is not run again. The last part writes ``docs/world-learning.json``.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import yaml
from scores import paired, pooled
from staged import ROOT, composed, link_to, run

from astra.arena.prompt import initial_messages
from astra.arena.reward import RewardMode
from astra.arena.world_table import read_arenas
from astra.arena.worlds import goal_of
from astra.records.base import canonical_json, content_id
from astra.records.bench import BenchEpisode
from astra.records.environment import Arena
from astra.records.qa import Split
from astra.records.score import Scored
from astra.records.trajectory import SFTSample
from astra.records.world import EventKind, TraceEvent
from astra.rollout.chat import ChatCodec, PolicyConfig, load_codec
from astra.rollout.live import EpisodeJob, Rollout, RolloutLimits
from astra.sandbox.limits import SandboxLimits
from astra.store.tables import read_records
from astra.tracking.mlflow import digests
from astra.train.checkpoints import run_folder
from astra.train.sft_config import SFTConfig

WORK = ROOT / "runs/world_learning"
DATA = WORK / "data"
OUT = ROOT / "docs/world-learning.json"
CODE = ("policies", "stages", "src", "sources")
WORLDS = (
    "worlds.shape=small", "worlds.domains=[]", "worlds.variants={train: 1, dev: 1, heldout: 1}",
    "worlds.composed=240", "worlds.proofs={fuzz_calls: 80, walk_calls: 150}",
    "goals.instances={train: 3400, dev: 60, heldout: 520}", "goals.wishes=1",
)  # fmt: skip
SFT = (
    "sft.max_tokens=1200", "sft.epochs=100.0", "sft.max_steps=900", "sft.batch_size=16",
    "sft.micro_batch_size=16", "sft.eval_steps=150", "sft.save_steps=150", "sft.patience=0",
    "sft.keep_checkpoints=9",
)  # fmt: skip
RL = (
    "rl.reward=state", "rl.steps=30", "rl.dev_arenas=0", "rl.save_steps=10",
    "rl.irrelevant_tools=none", "rl.limits.max_turns=12", "rl.limits.max_calls=12",
    "rl.limits.max_response_tokens=900", "rl.limits.max_turn_tokens=64", "rl.groups=4",
    "rl.micro_batch_size=16",
)  # fmt: skip
BENCH = (
    "bench.arenas=null", "bench.irrelevant_tools=none", "bench.limits.max_turns=12",
    "bench.limits.max_calls=12", "bench.limits.max_response_tokens=900",
    "bench.limits.max_turn_tokens=64",
    "bench.engine_rows=64",
    "bench.contamination=null",
)  # fmt: skip
TRIES = 8
TRIED = 32
"""Goals of which pass@8 of the start, and partial credit along SFT, are measured."""


def prepare(folder: Path, overrides: Sequence[str]) -> None:
    """A working directory for stages: code linked, parameters composed with ``overrides``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in CODE:
        link_to(folder / name, ROOT / name)
    (folder / "data").mkdir(exist_ok=True)
    params = composed(["scale=smoke", *overrides])
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))


def make_data(worlds: Sequence[str] = WORLDS, folder: Path = DATA) -> None:
    """Worlds, goals and conversations, and what SFT and RL read."""
    prepare(folder, worlds)
    for stage in ("worlds", "goals", "conversations"):
        run(folder, stage, Path(f"data/{stage}.parquet"))
    arenas = folder / "data/envs_merged.parquet"
    if not arenas.exists():
        shutil.copy(folder / "data/goals.parquet", arenas)
    link_to(folder / "data/sft_set.parquet", folder / "data/conversations.parquet")


def lengths(codec: ChatCodec, context: int) -> dict[str, Any]:
    """Tokens of prompts, and of the scripted agent's whole conversations, beside the context."""
    prompts = [
        len(codec.encode_prompt(initial_messages(arena), [one.tool for one in arena.tools]))
        for arena in read_arenas(DATA / "data/goals.parquet")
    ]
    talks = [
        len(codec.encode_conversation(sample.messages, sample.tools)[0])
        for sample in read_records(DATA / "data/conversations.parquet", SFTSample)
    ]
    return {"context": context, "prompt": _spread(prompts), "conversation": _spread(talks)}


def _spread(values: Iterable[int]) -> dict[str, float]:
    found = sorted(values)
    return {"median": median(found), "p95": found[int(0.95 * (len(found) - 1))], "most": found[-1]}


def link_data(folder: Path, data: Path = DATA) -> None:
    for name in ("worlds", "sft_set", "envs_merged"):
        link_to(folder / f"data/{name}.parquet", data / f"data/{name}.parquet")


def start(seed: int) -> Path:
    """The SFT start of a seed."""
    folder = WORK / f"start-{seed}"
    prepare(folder, [*SFT, f"sft.seed={seed}"])
    link_data(folder)
    run(folder, "sft", Path("models/sft"))
    return folder


def trained(seed: int) -> Path:
    """RL from a seed's start on the worlds' goals."""
    folder = WORK / f"rl-{seed}"
    prepare(folder, [*RL, f"rl.seed={seed}"])
    link_data(folder)
    link_to(folder / "models/sft", start(seed) / "models/sft")
    run(folder, "rl", Path("models/rl"))
    return folder


def control(seed: int) -> Path:
    """SFT of a seed with as many steps more as RL's CPU time buys."""
    seconds = json.loads((WORK / f"rl-{seed}/rl.seconds.json").read_text())["cpu_s"]
    before = json.loads((start(seed) / "sft.seconds.json").read_text())["cpu_s"]
    steps = json.loads((start(seed) / "metrics/sft.json").read_text())["steps"]
    longer = steps + math.ceil(steps * seconds / before)
    folder = WORK / f"control-{seed}"
    prepare(folder, [*SFT, f"sft.seed={seed}", f"sft.max_steps={longer}"])
    link_data(folder)
    run(folder, "sft", Path("models/sft"))
    return folder


def scored(name: str, seed: int, policy: Path) -> dict[str, dict[str, BenchEpisode]]:
    """Episodes on all held-out goals, by checkpoint (``sft``: the start, ``rl``: ``policy``)."""
    folder = WORK / f"scored-{name}-{seed}"
    prepare(folder, BENCH)
    link_data(folder)
    link_to(folder / "models/sft", start(seed) / "models/sft")
    link_to(folder / "models/rl", policy)
    run(folder, "bench", Path("data/bench.parquet"))
    played: dict[str, dict[str, BenchEpisode]] = {}
    for one in read_records(folder / "data/bench.parquet", BenchEpisode):
        played.setdefault(one.checkpoint, {})[one.arena_id] = one
    return played


def played(policy: Path, goals: Sequence[Arena], tries: int, temperature: float) -> list[Rollout]:
    """Episodes of a saved policy, ``tries`` of each goal in a row, with RL's limits."""
    from astra.rollout.batched import BatchedEngine
    from astra.rollout.chat import load_policy
    from astra.rollout.driver import RolloutDriver
    from astra.rollout.engine import Sampling
    from astra.sandbox.local import LocalSandbox

    limits = RolloutLimits.model_validate(composed(["scale=smoke", *RL])["rl"]["limits"])
    loaded = load_policy(PolicyConfig.saved(str(policy), "float32"))
    engine = BatchedEngine(loaded.model, loaded.codec.eos_id, loaded.codec.pad_id, 64)
    with LocalSandbox(SandboxLimits(cpu_s=600, call_timeout_s=30.0)) as sandbox:
        driver = RolloutDriver(engine, loaded.codec, sandbox, limits, RewardMode.STATE)
        jobs = [EpisodeJob(goal) for goal in goals for _ in range(tries)]
        return driver.run(jobs, Sampling(temperature, 0))


def drawn(split: Split, count: int) -> list[Arena]:
    """Goals of a split in an order that their ids give."""
    goals = [one for one in read_arenas(DATA / "data/goals.parquet") if one.split is split]
    return sorted(goals, key=lambda one: content_id(["drawn", one.id]))[:count]


def credit(rollout: Rollout) -> float:
    """The share of the calls of the goal's own trace that an episode made, with their arguments."""
    wanted = Counter(_calls(goal_of(rollout.arena).trace))
    made = Counter(_calls(one for one in rollout.trace or () if not one.failed))
    return sum((wanted & made).values()) / max(1, sum(wanted.values()))


def _calls(events: Iterable[TraceEvent]) -> list[str]:
    return [
        canonical_json([one.tool, one.arguments]) for one in events if one.kind == EventKind.CALL
    ]


def start_figures(seed: int) -> dict[str, Any]:
    """pass@1 and pass@8 of a seed's start, and partial credit along its SFT, greedily."""
    file = WORK / f"start-{seed}/figures.json"
    if file.exists():
        return json.loads(file.read_text())
    folder = start(seed)
    goals = drawn(Split.TRAIN, TRIED)
    rollouts = played(folder / "models/sft", goals, TRIES, 1.0)
    wins = [sum(_succeeds(one) for one in rollouts[at : at + TRIES])
            for at in range(0, len(rollouts), TRIES)]  # fmt: skip
    curve = {
        str(step): {
            split.value: _along(checkpoint, split) for split in (Split.TRAIN, Split.HELDOUT)
        }
        for step, checkpoint in checkpoints(folder, seed)
    }
    found = {
        "goals": len(goals),
        "pass_1": round(sum(wins) / len(rollouts), 4),
        f"pass_{TRIES}": round(sum(won > 0 for won in wins) / len(goals), 4),
        "wins": dict(sorted(Counter(wins).items())),
        "along_sft": curve,
    }
    file.write_text(json.dumps(found))
    return found


def _succeeds(rollout: Rollout) -> bool:
    return rollout.score is not None and rollout.score.success


def _along(policy: Path, split: Split) -> dict[str, float]:
    rollouts = played(policy, drawn(split, TRIED), 1, 0.0)
    return {
        "credit": round(fmean(map(credit, rollouts)), 4),
        "success": round(fmean(map(_succeeds, rollouts)), 4),
    }


def checkpoints(folder: Path, seed: int) -> list[tuple[int, Path]]:
    """The checkpoints of a seed's SFT by step, each a policy with the tokenizer of the last."""
    params = yaml.safe_load((folder / "params.yaml").read_text())
    inputs = digests(folder / "data/sft_set.parquet", folder / params["sft"]["policy"]["path"])
    run_of = run_folder("sft", SFTConfig.model_validate(params["sft"]), inputs)
    found: list[tuple[int, Path]] = []
    for path in run_of.glob("checkpoint-*"):
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            if not (path / name).exists():
                shutil.copy(folder / "models/sft" / name, path / name)
        found.append((int(path.name.rpartition("-")[2]), path))
    return sorted(found)


def _values(episodes: Mapping[str, BenchEpisode], score: str) -> dict[str, float]:
    return {
        arena: value.value
        for arena, one in episodes.items()
        if isinstance(value := one.scores.get(score), Scored)
    }


def report(seeds: Sequence[int]) -> dict[str, Any]:
    """What every arm scored on the held-out goals, and paired differences over seeds."""
    values: dict[str, list[dict[str, float]]] = {"sft": []}
    kinds: dict[str, str] = {}
    for seed in seeds:
        for name, stage in (("rl", "rl"), ("control", "sft")):
            model = WORK / f"{name}-{seed}/models/{stage}"
            if not model.exists():
                continue
            found = scored(name, seed, model)
            values.setdefault(name, []).append(_values(found["rl"], "success"))
            if name == "rl":
                values["sft"].append(_values(found["sft"], "success"))
            kinds |= {arena: one.kind.value for arena, one in found["rl"].items()}
    means = {name: _estimate(runs) for name, runs in values.items() if runs}
    pairs: dict[str, Any] = {}
    for after, before in (("rl", "sft"), ("control", "sft"), ("rl", "control")):
        both = list(zip(values.get(after, []), values.get(before, []), strict=False))
        if both:
            pairs[f"{after}-{before}"] = _estimate([paired(a, b) for a, b in both])
    by_kind = {
        kind: {
            name: round(sum(v for run_ in runs for a, v in run_.items() if kinds.get(a) == kind)
                        / max(1, sum(kinds.get(a) == kind for run_ in runs for a in run_)), 4)
            for name, runs in values.items() if runs
        }
        for kind in sorted({*kinds.values()})
    }  # fmt: skip
    return {"seeds": list(seeds), "success": means, "paired": pairs, "by_kind": by_kind}


def _estimate(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    found = pooled(runs)
    return {name: round(getattr(found, name), 4) for name in ("mean", "low", "high", "n")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", required=True,
                        choices=("start", "rl", "control", "report"))  # fmt: skip
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    arguments = parser.parse_args()
    make_data()
    for seed in arguments.seeds:
        match arguments.part:
            case "start":
                print(json.dumps(start_figures(seed)))
            case "rl":
                scored("rl", seed, trained(seed) / "models/rl")
            case "control":
                scored("control", seed, control(seed) / "models/sft")
            case _:
                pass
    if arguments.part == "report":
        codec = load_codec(PolicyConfig.saved(str(ROOT / "policies/tiny"), "float32"))
        context = json.loads((ROOT / "policies/tiny/config.json").read_text())
        document = {
            "lengths": lengths(codec, context["max_position_embeddings"]),
            "start": {str(seed): start_figures(seed) for seed in arguments.seeds},
            **report(arguments.seeds),
        }
        OUT.write_text(json.dumps(document, indent=1) + "\n")
        print(json.dumps(document))


if __name__ == "__main__":
    main()
