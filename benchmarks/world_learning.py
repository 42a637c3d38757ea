"""Does a small policy learn to talk with the users of worlds: SFT, RL, and more SFT instead?

    python benchmarks/world_learning.py --part start      # SFT, and what it can do along the way
    python benchmarks/world_learning.py --part rl --seeds 0 1
    python benchmarks/world_learning.py --part control --seeds 0 1
    python benchmarks/world_learning.py --part rl --arm lookups     # or another of ``ARMS``
    python benchmarks/world_learning.py --part report --seeds 0 1

The real stages run in folders of their own under ``runs/world_learning``: small-shape worlds of 240
composed domains and of the project's ten, their goals and conversations; SFT of the tiny policy in
four parts (``PARTS``), short conversations first, then more of them under other names
(``worlds/renaming.py``), then longer ones. What this gave is ``policies/world-start``. From there
RL on the worlds' goals, in copies of their worlds under other names, on other arenas (``ARMS``),
and as much SFT as the CPU time of RL buys. RL can only begin where the start reaches some goals,
so the first part tells pass@8 of its start, and partial credit along SFT: the share of the calls
that a goal's own trace makes, with those arguments, in ``docs/world-start.json``. Every policy
plays all goals of the held-out domains, greedily and as RL samples. What exists is not run again;
runs are kept where other machines find them (``world_runs.py``). The last part puts them together
in ``docs/world-learning.json``.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import yaml
from scores import paired, pooled
from staged import ROOT, composed, keyed, link_to, run
from world_runs import Score, WorldRun, keep, kept

from astra.arena.prompt import initial_messages
from astra.arena.reward import RewardMode
from astra.arena.world_table import read_arenas
from astra.arena.worlds import goal_of
from astra.publish.origins import goal_id
from astra.records.base import canonical_json, compact_json, content_id
from astra.records.environment import Arena
from astra.records.qa import Split
from astra.records.trajectory import SFTSample
from astra.records.world import EventKind, TraceEvent, World
from astra.rollout.chat import ChatCodec, PolicyConfig, load_codec
from astra.rollout.live import EpisodeJob, Rollout, RolloutLimits
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.store.tables import read_records, write_records
from astra.tracking.mlflow import file_digest
from astra.worlds.goal_copies import goal_copy
from astra.worlds.renaming import renamed
from worlds import played as by_rule

WORK = ROOT / "runs/world_learning"
DATA = WORK / "data"
LOOKUPS = ROOT / "data/envs_merged.parquet"
START = ROOT / "policies/world-start"
"""Where RL and its control begin: what ``--part start`` gave, in bfloat16."""
STARTED = ROOT / "docs/world-start.json"
OUT = ROOT / "docs/world-learning.json"
CODE = ("policies", "stages", "src", "sources")
WORLDS = (
    "worlds.shape=small", "worlds.domains=[]", "worlds.variants={train: 1, dev: 1, heldout: 1}",
    "worlds.composed=240", "worlds.proofs={fuzz_calls: 80, walk_calls: 150}",
    "goals.instances={train: 3400, dev: 60, heldout: 520}", "goals.wishes=1",
)  # fmt: skip
SFT = (
    "sft.epochs=100.0", "sft.batch_size=6", "sft.micro_batch_size=6", "sft.eval_steps=125",
    "sft.save_steps=125", "sft.patience=0", "sft.keep_checkpoints=9",
)  # fmt: skip


class Part(NamedTuple):
    """A part of SFT: which conversations, of how many tokens at most, for how many steps."""

    name: str
    table: str
    tokens: int
    steps: int


PARTS = (
    Part("plain", "conversations", 760, 500),
    Part("renamed", "renamed_short", 760, 600),
    Part("start", "renamed_long", 1300, 3000),
    Part("whole", "renamed_whole", 2048, 1400),
)
RENAMED = {
    "renamed_short": (range(1, 4), 1000), "renamed_long": (range(11, 14), 1400),
    "renamed_whole": (range(21, 24), 2048),
}  # fmt: skip
"""Which copies under other names stand beside conversations of so many tokens at most."""
RL = (
    "runtime.rl_launch=''", "rl.reward=state", "rl.dev_arenas=0", "rl.save_steps=10",
    "rl.steps=20", "rl.groups=8", "rl.learning_rate=4.0e-4", "rl.min_reward_std=0.05",
    "rl.irrelevant_tools=none", "rl.limits.max_turns=8", "rl.limits.max_calls=8",
    "rl.limits.max_response_tokens=1400", "rl.limits.max_result_chars=2048",
    "rl.limits.max_turn_tokens=112", "rl.micro_batch_size=16", "rl.layout=tree",
)  # fmt: skip
ARMS = {
    "rl": "goals to train on, each with its user, in copies of their worlds under other names",
    "own_names": "the same goals in their own worlds",
    "alone": "copies of those that need no user who talks, without their users",
    "worlds_4": "copies of those of 4 worlds", "worlds_16": "of 16", "worlds_48": "of 48",
    "lookups": "look-up arenas of data/envs_merged.parquet, paid by F1, in place of goals",
}  # fmt: skip
"""What RL trains on."""
OFFERED = 480
"""Arenas that RL is offered."""
PACE = (5, 45)
"""Steps of the two runs that tell how long a step of the control takes."""
TRIES = 8
TRIED = 32
"""Goals of which pass@8 of the start, and partial credit along SFT, are measured."""


def prepare(folder: Path, overrides: Sequence[str]) -> None:
    """A working directory for stages: code linked, parameters composed with ``overrides``.

    SystemExit where the folder was begun with others: what lies there is of those.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in CODE:
        link_to(folder / name, ROOT / name)
    (folder / "data").mkdir(exist_ok=True)
    file = folder / "params.yaml"
    params = composed(["scale=smoke", *overrides])
    if file.exists() and yaml.safe_load(file.read_text()) != params:
        raise SystemExit(
            f"{folder} was begun with other parameters than params.yaml would have now; remove "
            "it, and those that start from it, to run it anew"
        )
    file.write_text(yaml.safe_dump(params, sort_keys=False))


def make_data(worlds: Sequence[str] = WORLDS, folder: Path = DATA) -> None:
    """Worlds, goals and conversations, and what SFT and RL read."""
    prepare(folder, worlds)
    for stage in ("worlds", "goals", "conversations"):
        run(folder, stage, Path(f"data/{stage}.parquet"))
    for name, (copies, most) in RENAMED.items():
        if not (folder / f"data/{name}.parquet").exists():
            write_renamed(folder / "data", name, copies, most)


def write_renamed(data: Path, name: str, copies: Sequence[int], most: int) -> None:
    """Conversations of at most ``most`` tokens, with copies of those to train on."""
    codec, words = tiny_codec(), tiny_words()
    worlds = {world.id: world for world in read_records(data / "worlds.parquet", World)}
    of = {goal.id: worlds[goal.world_id] for goal in read_records(data / "goals.parquet", Arena)}
    made: list[SFTSample] = []
    for one in read_records(data / "conversations.parquet", SFTSample):
        if one.split == "eval":
            made.append(one)
        elif len(codec.encode_conversation(one.messages, one.tools)[0]) <= most:
            world = of[goal_id(one)]
            made += [one, *(renamed(one, world, copy, words) for copy in copies)]
    write_records(data / f"{name}.parquet", sorted(made, key=lambda one: one.id), SFTSample)


@cache
def tiny_codec() -> ChatCodec:
    return load_codec(PolicyConfig.saved(str(ROOT / "policies/tiny"), "float32"))


def tiny_words() -> list[str]:
    """The words that are one token of the tiny policy each, in lower case."""
    tokens = {one.removeprefix("\u0120") for one in tiny_codec().tokenizer.get_vocab()}
    return sorted(one for one in tokens if re.fullmatch("[a-z]{2,}", one))


def lengths() -> dict[str, Any]:
    """Tokens of prompts, and of the scripted agent's whole conversations, beside the context."""
    codec = tiny_codec()
    config = json.loads((ROOT / "policies/tiny/config.json").read_text())
    prompts = [
        len(codec.encode_prompt(initial_messages(arena), [one.tool for one in arena.tools]))
        for arena in read_arenas(DATA / "data/goals.parquet")
    ]
    talks = [
        len(codec.encode_conversation(sample.messages, sample.tools)[0])
        for sample in read_records(DATA / "data/conversations.parquet", SFTSample)
    ]
    found = {"prompt": _spread(prompts), "conversation": _spread(talks)}
    return {"context": config["max_position_embeddings"]} | found


def _spread(values: Iterable[int]) -> dict[str, float]:
    found = sorted(values)
    return {"median": median(found), "p95": found[int(0.95 * (len(found) - 1))], "most": found[-1]}


def fine_tuned(folder: Path, seed: int, part: Part, steps: int, before: str) -> Path:
    """A part of SFT from the policy ``before``, in a folder of its own."""
    prepare(folder, [*SFT, f"sft.seed={seed}", f"sft.max_tokens={part.tokens}",
                     f"sft.max_steps={steps}", f"policy.path={before}"])  # fmt: skip
    link_to(folder / "data/sft_set.parquet", DATA / f"data/{part.table}.parquet")
    run(folder, "sft", Path("models/sft"))
    return folder


def started() -> dict[str, Path]:
    """The folder of every part of SFT, by its name; the last has the start."""
    found: dict[str, Path] = {}
    before = "policies/tiny"
    for part in PARTS:
        found[part.name] = fine_tuned(WORK / f"sft-{part.name}", 0, part, part.steps, before)
        before = str(found[part.name] / "models/sft")
    return found


def arm_folder(arm: str, seed: int) -> Path:
    """Where a run lies: one of another recipe lies elsewhere."""
    return keyed(WORK, f"{arm}-{seed}", recipe_of(arm))


def rl_settings(arm: str) -> tuple[str, ...]:
    return (*RL, "rl.reward=f1") if arm == "lookups" else RL


def trained(arm: str, seed: int) -> Path:
    """RL from the start on an arm's arenas."""
    folder = arm_folder(arm, seed)
    prepare(folder, [*rl_settings(arm), f"rl.seed={seed}"])
    if not (folder / "data/envs_merged.parquet").exists():
        offer(folder / "data", arm)
    link_to(folder / "models/sft", START)
    run(folder, "rl", Path("models/rl"))
    return folder


def offer(data: Path, arm: str) -> None:
    """Write the arenas of an arm that RL is offered, and the worlds they play in."""
    arenas = by_draw(arenas_of(arm))
    if arm in ("lookups", "own_names"):
        arenas = arenas[:OFFERED]
        link_to(data / "worlds.parquet", DATA / "data/worlds.parquet")
    else:
        arenas, worlds = copied(arenas)
        write_records(data / "worlds.parquet", worlds, World)
    arenas = [without_user(one) for one in arenas] if arm == "alone" else arenas
    write_records(data / "envs_merged.parquet", arenas, Arena)


def copied(goals: Iterable[Arena]) -> tuple[list[Arena], list[World]]:
    """So many goals as are offered, each in a copy of its world under names of its own."""
    worlds = {one.id: one for one in read_records(DATA / "data/worlds.parquet", World)}
    words = tiny_words()
    with LocalSandbox(SandboxLimits(cpu_s=600, call_timeout_s=30.0)) as sandbox:
        made = (goal_copy(one, worlds[one.world_id], 1, sandbox, words) for one in goals)
        pairs = list(islice((pair for pair in made if pair), OFFERED))
    return [arena for arena, _ in pairs], [world for _, world in pairs]


def arenas_of(arm: str) -> list[Arena]:
    """The training arenas of an arm, by id, as the project's tables have them."""
    if arm == "lookups":
        merged = read_records(LOOKUPS, Arena)
        return [one for one in merged if one.split is Split.TRAIN and not one.world_id]
    goals = read_records(DATA / "data/goals.parquet", Arena)
    goals = [one for one in goals if one.split is Split.TRAIN]
    if arm == "alone":
        return [one for one in goals if not goal_of(one).needs_user]
    if not arm.startswith("worlds_"):
        return goals
    worlds = sorted({one.world_id for one in goals}, key=lambda one: content_id(["drawn", one]))
    chosen = worlds[: int(arm.removeprefix("worlds_"))]
    return [one for one in goals if one.world_id in chosen]


def without_user(arena: Arena) -> Arena:
    """The goal with nobody who answers: the first message without calls ends the episode."""
    goal = goal_of(arena).model_copy(update={"script": None})
    told = compact_json(goal.model_dump(mode="json"))
    return Arena.model_validate(arena.model_dump(exclude={"id"}) | {"goal": told})


def control(seed: int) -> Path:
    """SFT that goes on from the start for as many steps as RL's CPU time buys."""
    steps = run_of("rl", seed).buys
    assert steps, "the run of RL says what its time buys"
    return fine_tuned(arm_folder("control", seed), seed + 1000, PARTS[-1], steps, str(START))


def step_s() -> float:
    """CPU seconds of a step of the control on this machine: of two short runs, so that what
    comes before the first step does not count."""
    few, more = (
        cpu_s(fine_tuned(WORK / f"pace-{steps}", 0, PARTS[-1], steps, str(START))) for steps in PACE
    )
    return (more - few) / (PACE[1] - PACE[0])


def scored(folder: Path, policy: Path) -> dict[str, Score]:
    """What a policy does on each held-out goal, kept in a folder."""
    file = folder / "heldout.json"
    if not file.exists():
        goals = drawn(Split.HELDOUT)
        greedy, sampled = (played(policy, goals, 1, temperature) for temperature in (0.0, 1.0))
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({
            one.arena.id: Score(
                float(_succeeds(one)), float(_succeeds(other)), round(credit(one), 4)
            )
            for one, other in zip(greedy, sampled, strict=True)
        }))  # fmt: skip
    return {id: Score(*score) for id, score in json.loads(file.read_text()).items()}


def played(policy: Path, goals: Sequence[Arena], tries: int, temperature: float) -> list[Rollout]:
    """Episodes of a saved policy, ``tries`` of each goal in a row, with RL's limits. SystemExit
    where our own machinery lost one: it says nothing of the policy."""
    from astra.rollout.batched import BatchedEngine
    from astra.rollout.chat import load_policy
    from astra.rollout.driver import RolloutDriver
    from astra.rollout.engine import Sampling

    limits = RolloutLimits.model_validate(stage_settings("rl", RL)["limits"])
    loaded = load_policy(PolicyConfig.saved(str(policy), "float32"))
    engine = BatchedEngine(loaded.model, loaded.codec.eos_id, loaded.codec.pad_id, 64)
    with LocalSandbox(SandboxLimits(cpu_s=600, call_timeout_s=30.0)) as sandbox:
        driver = RolloutDriver(engine, loaded.codec, sandbox, limits, RewardMode.STATE)
        jobs = [EpisodeJob(goal) for goal in goals for _ in range(tries)]
        rollouts = driver.run(jobs, Sampling(temperature, 0))
    if lost := [one.problem for one in rollouts if one.score is None]:
        raise SystemExit(
            f"{len(lost)} of {len(rollouts)} episodes of {policy} have no score; the last problem "
            f"was: {lost[-1]}. Run the same command again: what was trained is kept"
        )
    return rollouts


@cache
def drawn(split: Split, count: int | None = None) -> list[Arena]:
    """Goals of a split, all or so many, in an order that their ids give."""
    goals = [one for one in read_arenas(DATA / "data/goals.parquet") if one.split is split]
    return by_draw(goals)[:count]


def by_draw(arenas: Iterable[Arena]) -> list[Arena]:
    return sorted(arenas, key=lambda one: content_id(["drawn", one.id]))


def credit(rollout: Rollout) -> float:
    """The share of the calls of the goal's own trace that an episode made, with their arguments."""
    wanted = Counter(_calls(goal_of(rollout.arena).trace))
    made = Counter(_calls(one for one in rollout.trace or () if not one.failed))
    return sum((wanted & made).values()) / max(1, sum(wanted.values()))


def _calls(events: Iterable[TraceEvent]) -> list[str]:
    return [
        canonical_json([one.tool, one.arguments]) for one in events if one.kind == EventKind.CALL
    ]


def pass_figures(folder: Path, split: Split) -> dict[str, Any]:
    """pass@1 and pass@8 of the start in a folder on goals of a split."""
    file = folder / f"pass-{split}.json"
    if not file.exists():
        goals = drawn(split, TRIED)
        rollouts = played(folder / "models/sft", goals, TRIES, 1.0)
        wins = [sum(_succeeds(one) for one in rollouts[at : at + TRIES])
                for at in range(0, len(rollouts), TRIES)]  # fmt: skip
        file.write_text(json.dumps({
            "goals": len(goals),
            "pass_1": round(sum(wins) / len(rollouts), 4),
            f"pass_{TRIES}": round(sum(won > 0 for won in wins) / len(goals), 4),
            "wins": dict(sorted(Counter(wins).items())),
        }))  # fmt: skip
    return json.loads(file.read_text())


def along(folder: Path, policy: Path) -> dict[str, dict[str, float]]:
    """Credit and success of a policy on training goals and the development domain's."""
    file = folder / "along.json"
    if not file.exists():
        file.write_text(json.dumps({
            split.value: _along(policy, split) for split in (Split.TRAIN, Split.DEV)
        }))  # fmt: skip
    return json.loads(file.read_text())


def _succeeds(rollout: Rollout) -> bool:
    return rollout.score is not None and rollout.score.success


def _along(policy: Path, split: Split) -> dict[str, float]:
    rollouts = played(policy, drawn(split, TRIED), 1, 0.0)
    return {
        "credit": round(fmean(map(credit, rollouts)), 4),
        "success": round(fmean(map(_succeeds, rollouts)), 4),
    }


def floors() -> dict[str, Any]:
    """What agents that follow a rule reach on the held-out goals: reached, tried, interval."""
    worlds = read_records(DATA / "data/worlds.parquet", World)
    heldout = [world for world in worlds if world.split is Split.HELDOUT]
    with LocalSandbox(SandboxLimits(cpu_s=600)) as sandbox:
        return by_rule(heldout, list(read_records(DATA / "data/goals.parquet", Arena)), sandbox)


def run_of(arm: str, seed: int) -> WorldRun:
    """The run of an arm; trained and played unless it is kept, here or by another machine."""
    recipe = recipe_of(arm)
    found = kept().get((arm, seed))
    if found and found.recipe == recipe:
        return found
    folder = arm_folder(arm, seed)
    match arm:
        case "start":
            policy = START
        case "control":
            policy = control(seed) / "models/sft"
        case _:
            policy = trained(arm, seed) / "models/rl"
    goals = scored(folder, policy)
    spent = 0.0 if arm == "start" else cpu_s(folder)
    buys = math.ceil(spent / step_s()) if arm == "rl" else None
    run = WorldRun(arm=arm, seed=seed, recipe=recipe, cpu_s=spent, buys=buys,
                   along=along(folder, policy), goals=goals)  # fmt: skip
    keep(run)
    return run


def recipe_of(arm: str) -> str:
    """The settings of an arm, the policy it starts from and the goals it is scored on, as an id."""
    rl = stage_settings("rl", rl_settings(arm))
    match arm:
        case "start":  # plays as RL does
            settings = [rl["limits"]]
        case "control":  # how long it goes on is what RL took
            settings = [rl, OFFERED, stage_settings("sft", SFT), PARTS[-1], repr(RENAMED)]
        case "lookups":
            settings = [rl, OFFERED, file_digest(LOOKUPS)]
        case _:
            settings = [rl, OFFERED]
    heldout = sorted(one.id for one in drawn(Split.HELDOUT))
    first = file_digest(START / "model.safetensors")
    return content_id([arm, settings, WORLDS, first, heldout])


@cache
def stage_settings(stage: str, overrides: tuple[str, ...]) -> dict[str, Any]:
    return composed(["scale=smoke", *overrides])[stage]


def report(seeds: Sequence[int]) -> dict[str, Any]:
    """What every arm that was run scored on the held-out goals, and paired differences over
    seeds."""
    runs = kept()
    arms = {
        arm: {seed: run for seed in seeds
              if (run := runs.get((arm, seed))) and run.recipe == recipe_of(arm)}
        for arm in (*ARMS, "control")
    }  # fmt: skip
    arms = {arm: found for arm, found in arms.items() if found}
    # The one start is that of every seed.
    start = run_of("start", 0)
    scores = {"start": dict.fromkeys(seeds, start.goals)} | {
        arm: {seed: run.goals for seed, run in found.items()} for arm, found in arms.items()
    }
    kinds = {goal.id: goal.kind.value for goal in drawn(Split.HELDOUT)}
    told: dict[str, Any] = {
        "seeds": seeds,
        "cpu_s": _each(arms, lambda run: run.cpu_s),
        "steps_of_sft_it_buys": _each({"rl": arms.get("rl", {})}, lambda run: run.buys),
        "floors": floors(),
        "along_arms": {"start": start.along} | _each(arms, lambda run: run.along),
    }
    told |= {score: compared(score, scores, kinds) for score in Score._fields}
    return told


def _each(
    arms: Mapping[str, Mapping[int, WorldRun]], value: Callable[[WorldRun], Any]
) -> dict[str, dict[int, Any]]:
    return {arm: {seed: value(run) for seed, run in runs.items()} for arm, runs in arms.items()}


def compared(
    score: str,
    found: Mapping[str, Mapping[int, Mapping[str, Score]]],
    kinds: Mapping[str, str],
) -> dict[str, Any]:
    """One score of ``found`` (by arm, seed and goal): every arm's mean, differences, and kinds."""
    values = {
        arm: {seed: {goal: getattr(one, score) for goal, one in goals.items()}
              for seed, goals in runs.items()}
        for arm, runs in found.items()
    }  # fmt: skip
    pairs = [(arm, "start") for arm in values if arm != "start"]
    pairs += [("rl", arm) for arm in values if "rl" in values and arm not in ("rl", "start")]
    return {
        "arms": {arm: estimate([*runs.values()]) for arm, runs in values.items()},
        "paired": {f"{a}-{b}": difference(values[a], values[b]) for a, b in pairs},
        "by_kind": {
            kind: {"goals": sum(one == kind for one in kinds.values())} | {
                arm: round(fmean(value for goals in runs.values() for goal, value in goals.items()
                                 if kinds[goal] == kind), 6)
                for arm, runs in values.items()
            }
            for kind in sorted({*kinds.values()})
        },
    }  # fmt: skip


def difference(
    after: Mapping[int, Mapping[str, float]], before: Mapping[int, Mapping[str, float]]
) -> dict[str, Any]:
    """The difference of runs, goal by goal, over the seeds that both have; empty without any."""
    both = sorted(after.keys() & before.keys())
    if not both:
        return {}
    return estimate([paired(after[seed], before[seed]) for seed in both]) | {"seeds": both}


def estimate(runs: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    found = pooled(runs)
    return {name: round(getattr(found, name), 6) for name in ("mean", "low", "high", "n")}


def described() -> dict[str, Any]:
    """What the arms begin with: goals, lengths, and the start along its SFT."""
    parts = started()
    splits = Counter(one.split.value for one in read_records(DATA / "data/goals.parquet", Arena))
    last = parts[PARTS[-1].name]
    heldout = scored(last, last / "models/sft").values()
    return {
        "cpu_s": {name: cpu_s(folder) for name, folder in parts.items()},
        "goals": dict(sorted(splits.items())),
        "lengths": lengths(),
        "along_sft": {name: along(one, one / "models/sft") for name, one in parts.items()},
        "passes": {one.value: pass_figures(last, one) for one in (Split.TRAIN, Split.HELDOUT)},
        "heldout": {name: round(fmean(getattr(one, name) for one in heldout), 4)
                    for name in ("success", "credit")},
    }  # fmt: skip


def cpu_s(folder: Path) -> float:
    """CPU seconds of the training that was run in a folder."""
    (record,) = (one for one in (folder / "sft.seconds.json", folder / "rl.seconds.json")
                 if one.exists())  # fmt: skip
    return json.loads(record.read_text())["cpu_s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", required=True, choices=("start", "rl", "control", "report"))
    parser.add_argument("--arm", choices=tuple(ARMS), default="rl")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    arguments = parser.parse_args()
    make_data()
    match arguments.part:
        case "start":
            write(STARTED, described())
        case "rl":
            for seed in arguments.seeds:
                run_of(arguments.arm, seed)
        case "control":
            for seed in arguments.seeds:
                run_of("control", seed)
        case _:
            write(OUT, report(arguments.seeds))


def write(file: Path, document: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document))


if __name__ == "__main__":
    main()
