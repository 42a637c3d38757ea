"""Does RL teach more than SFT, over seeds, and more than SFT with RL's compute would?

``python benchmarks/learning.py --seeds 0 1 2`` runs the real stages sft, rl and bench for every
seed in a folder of its own under ``runs/learning``, on the built data sets, and per seed a control:
SFT from the same base with as many optimizer steps more as fit into the CPU time that RL used.
The control's learning rates follow one cosine over all its steps and nothing ends it early.
What exists is not run again, so an interrupted benchmark goes on where it stopped. Results go to
``docs/learning.json``; training times mean something only if nothing else runs.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from scores import SCORES, Values, by_checkpoint, paired, pooled
from staged import ROOT, link_inputs, link_to, run

from astra.records.bench import BenchEpisode
from astra.store.tables import read_records

WORK = ROOT / "runs/learning"


def prepare(folder: Path, changes: dict[str, dict[str, Any]]) -> None:
    """A working directory for stages: inputs linked, parameters copied with ``changes``."""
    link_inputs(folder)
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    for block, values in changes.items():
        params[block].update(values)
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))


def seed_runs(seed: int) -> dict[str, Any]:
    """SFT, RL and the control of one seed, scored on the same held-out arenas."""
    folder, control = WORK / f"seed-{seed}", WORK / f"control-{seed}"
    for one in (folder, control):
        one.mkdir(parents=True, exist_ok=True)
    prepare(folder, {"sft": {"seed": seed}, "rl": {"seed": seed}})
    seconds = {"sft": run(folder, "sft", Path("models/sft"))}
    seconds["rl"] = run(folder, "rl", Path("models/rl"))
    run(folder, "bench", Path("data/bench.parquet"))
    steps = json.loads((folder / "metrics/sft.json").read_text())["steps"]
    extra = math.ceil(steps * seconds["rl"]["cpu_s"] / seconds["sft"]["cpu_s"])
    longer = {"seed": seed, "max_steps": steps + extra, "epochs": 1000.0, "patience": 0}
    prepare(control, {"sft": longer})
    seconds["control"] = run(control, "sft", Path("models/sft"))
    scored = control / "scored"  # bench scores the control in the place of the RL checkpoint
    scored.mkdir(exist_ok=True)
    prepare(scored, {})
    link_to(scored / "models/sft", folder / "models/sft")
    link_to(scored / "models/rl", control / "models/sft")
    run(scored, "bench", Path("data/bench.parquet"))
    played = values(folder) | {"control": values(scored)["rl"]}
    return {
        "seconds": seconds,
        "sft_steps": steps,
        "control_steps": steps + extra,
        "values": played,
        "parts": parts(folder),
    }


def values(folder: Path) -> dict[str, Values]:
    """What the benchmark of this folder measured, by checkpoint."""
    return by_checkpoint(read_records(folder / "data/bench.parquet", BenchEpisode))


def parts(folder: Path) -> dict[str, dict[str, str]]:
    """What an arena belongs to: breakdown -> arena -> part."""
    found: dict[str, dict[str, str]] = {"scenario": {}, "hops": {}}
    for episode in read_records(folder / "data/bench.parquet", BenchEpisode):
        found["scenario"][episode.arena_id] = episode.scenario.value
        found["hops"][episode.arena_id] = str(episode.hops)
    return found


def difference(
    seeds: list[dict[str, Any]], after: str, before: str, score: str
) -> dict[str, float]:
    """Paired difference, averaged over seeds for each arena; arenas are resampled."""
    played = [one["values"] for one in seeds]
    found = pooled([paired(one[after][score], one[before][score]) for one in played])
    return {name: round(getattr(found, name), 4) for name in ("mean", "low", "high", "n")}


def broken_down(seeds: list[dict[str, Any]], breakdown: str) -> dict[str, dict[str, float]]:
    """Mean F1 per part and checkpoint, over seeds."""
    table: dict[str, dict[str, float]] = {}
    for part in sorted({part for one in seeds for part in one["parts"][breakdown].values()}):
        row: dict[str, float] = {}
        for checkpoint in ("base", "sft", "rl", "control"):
            found = [
                value
                for one in seeds
                for arena, value in one["values"][checkpoint]["f1"].items()
                if one["parts"][breakdown][arena] == part
            ]
            row[checkpoint] = round(fmean(found), 4)
            row["arenas"] = len(found) // len(seeds)
        table[part] = row
    return table


def report(found: dict[int, dict[str, Any]]) -> dict[str, Any]:
    seeds = list(found.values())
    per_seed = {
        str(seed): {
            "seconds": one["seconds"],
            "steps": {"sft": one["sft_steps"], "control": one["control_steps"]},
            "scores": {
                checkpoint: {n: round(fmean(scores[n].values()), 4) for n in SCORES if scores[n]}
                for checkpoint, scores in one["values"].items()
            },
        }
        for seed, one in found.items()
    }
    pairs = (("sft", "base"), ("rl", "sft"), ("control", "sft"), ("rl", "control"))
    scores = [name for name in SCORES if all(one["values"]["sft"][name] for one in seeds)]
    return {
        "seeds": per_seed,
        "pooled": {
            f"{after}-{before}": {
                name: difference(seeds, after, before, name)
                for name in scores
                if all(o["values"][c][name] for o in seeds for c in (after, before))
            }
            for after, before in pairs
        },
        "by_scenario": broken_down(seeds, "scenario"),
        "by_hops": broken_down(seeds, "hops"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=ROOT / "docs/learning.json")
    arguments = parser.parse_args()
    document = report({seed: seed_runs(seed) for seed in arguments.seeds})
    arguments.out.write_text(json.dumps(document, indent=1) + "\n")
    for seed, one in document["seeds"].items():
        line = ", ".join(f"{name} {row['f1']:.3f}" for name, row in one["scores"].items())
        print(f"seed {seed}: {line}; {one['seconds']}")
    for pair, rows in document["pooled"].items():
        print(pair, {name: (row["mean"], row["low"], row["high"]) for name, row in rows.items()})


if __name__ == "__main__":
    main()
