"""The paper's ablations at laptop scale: one factor at a time around the default, over seeds.

    python benchmarks/ablations.py --steps 60 --seeds 0 1 2    # train and play what is missing
    python benchmarks/ablations.py --report --steps 60         # report what there is already

The arms are those of conf/experiments/ablations.yaml. Each trains the built models/sft through
the real stage rl, in a folder of its own under runs/ablations, and then plays the same arenas
twice, greedily: with irrelevant tools (``present``) and without (``absent``). A folder's name
depends on the parameters and the data, so that a change of either starts anew; what exists is
not run again and what was interrupted resumes. Several of these may run side by side with other
--seeds or --arms. The report is written to docs/ablations.json, docs/ablations.md and
docs/ablations/*.svg.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from ablation_report import CURVES, Outcome, Played, document, draw_curves, render
from scores import by_checkpoint
from staged import ROOT, composed, keyed, link_inputs, link_to, run

from astra.bench.arenas import select
from astra.bench.bench import run_arenas
from astra.bench.config import BenchConfig
from astra.bench.names import BASE
from astra.cli.ablations import GRID, Experiment, experiments, read_grid
from astra.records.base import content_id
from astra.records.environment import Arena
from astra.records.qa import Split
from astra.rollout.chat import PolicyConfig
from astra.settings import RuntimeConfig
from astra.store.tables import read_records
from astra.tracking.mlflow import digests

WORK = ROOT / "runs/ablations"
START, ARENAS = ROOT / "models/sft", ROOT / "data/envs_merged.parquet"
NOTHING = "nothing has been run with these settings yet; leave --report out"
PRESENCE = {"present": "banded", "absent": "none"}


@dataclass
class Settings:
    """What all arms share."""

    steps: int
    arenas: int
    split: Split
    overrides: tuple[str, ...]
    inputs: list[str] = field(default_factory=list[str])
    """Digests of the policy that training starts from and of the arenas."""

    @property
    def changes(self) -> list[str]:
        return [f"rl.steps={self.steps}", f"bench.arenas={self.arenas}", *self.overrides]


def folder_of(name: str, block: object, settings: Settings) -> Path:
    return keyed(WORK, name, block, settings.inputs)


def train(experiment: Experiment, settings: Settings, report_only: bool) -> Outcome | None:
    """Train and play one arm with one seed; None where ``report_only`` finds nothing."""
    document = composed([*settings.changes, *experiment.overrides])
    folder = folder_of(experiment.name.removeprefix("ablation-"), document["rl"], settings)
    if report_only and not _played_file(folder, document, settings).exists():
        return None
    link_inputs(folder)
    link_to(folder / "models/sft", START)
    (folder / "params.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    # Checkpoints go below the folder: a run of the same parameters elsewhere must not meet them.
    seconds = run(
        folder, "rl", Path("models/rl"),
        DVC_EXP_NAME=experiment.name, DVC_ROOT=str(folder / ".dvc/tmp/arm"),
    )  # fmt: skip
    played = play(folder, folder / "models/rl", document, experiment.name, settings)
    curves = {name: _curve(folder / f"plots/rl/{name}.csv") for name in CURVES}
    return Outcome(played, {name: c for name, c in curves.items() if c}, seconds)


def _curve(path: Path) -> dict[int, float]:
    if not path.exists():
        return {}  # nothing was measured, as tool errors where no rollout earned anything
    with path.open(newline="", encoding="utf-8") as handle:
        return {int(row["step"]): float(row[path.stem]) for row in csv.DictReader(handle)}


def _played_file(folder: Path, document: dict[str, Any], settings: Settings) -> Path:
    key = content_id([settings.split.value, document["bench"]])[:10]
    return folder / f"played-{key}.json"


def play(
    folder: Path, policy: Path, document: dict[str, Any], name: str, settings: Settings
) -> Played:
    """Every score of every arena, with and without irrelevant tools; once."""
    file = _played_file(folder, document, settings)
    if not file.exists():
        runtime = RuntimeConfig.model_validate(document["runtime"])
        played: Played = {}
        for presence, mode in PRESENCE.items():
            print(f"[ablations] {folder.name}: plays, irrelevant tools {presence}", flush=True)
            os.environ["DVC_EXP_NAME"] = f"{name}-{presence}"
            changed = {
                "policy": PolicyConfig.saved(str(policy), "float32"),
                "irrelevant_tools": mode,
            }
            config = BenchConfig.model_validate(document["bench"] | changed)
            # The benchmark's first checkpoint, its "base", is whatever the configuration names.
            episodes = run_arenas(config, runtime, chosen_arenas(config, settings), ARENAS, {})
            played[presence] = by_checkpoint(episodes)[BASE]
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps(played))
        fresh.replace(file)
    return json.loads(file.read_text())


def chosen_arenas(config: BenchConfig, settings: Settings) -> list[Arena]:
    """The same ones for every arm."""
    arenas = list(read_records(ARENAS, Arena))
    if settings.split == Split.HELDOUT:
        return select(arenas, config)
    found = [arena for arena in arenas if arena.split == settings.split]
    return sorted(found, key=lambda one: content_id([one.id]))[: settings.arenas]


def write_report(
    found: dict[str, dict[int, Outcome]],
    start: Played,
    settings: Settings,
    planned: Sequence[Experiment],
) -> None:
    document_ = composed(settings.changes)
    told = {
        "steps": settings.steps,
        "groups": document_["rl"]["groups"],
        "group_size": document_["rl"]["group_size"],
        "arenas": settings.arenas,
        "played": len(start["present"]["calls"]),
        "split": settings.split.value,
        "scale": document_["scale"],
        "overrides": list(settings.overrides),
        "inputs": settings.inputs,
    }
    made = document(found, start, told, {one.variant: one.changes for one in planned})
    docs = ROOT / "docs"
    (docs / "ablations.json").write_text(json.dumps(made, indent=1) + "\n")
    (docs / "ablations").mkdir(exist_ok=True)
    figures = draw_curves(made, docs / "ablations")
    (docs / "ablations.md").write_text(render(made, [path.name for path in figures]))
    for claim in made["claims"]:
        print(f"{claim['verdict']:32} {claim['says']}: {claim['mean']:+.3f}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=60, help="RL steps per arm")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", help="variants, for example default reward-recall")
    parser.add_argument("--arenas", type=int, default=400, help="played per arm, twice")
    parser.add_argument("--split", type=Split, default=Split.HELDOUT, help="heldout or dev")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="NAME=VALUE", help="for every arm: rl.groups=4 ..."
    )
    parser.add_argument("--report", action="store_true", help="run nothing")
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    os.chdir(ROOT)
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{WORK / 'mlflow.db'}"
    inputs = list(digests(START, ARENAS).values())
    settings = Settings(chosen.steps, chosen.arenas, chosen.split, tuple(chosen.set), inputs)
    planned = list(experiments({**read_grid(GRID), "seeds": chosen.seeds}))
    unknown = set(chosen.arms or ()) - {one.variant for one in planned}
    if unknown:
        raise SystemExit(f"no arm {unknown}; known: {sorted({one.variant for one in planned})}")
    begin = composed(settings.changes)
    folder = folder_of("start", "", settings)
    folder.mkdir(parents=True, exist_ok=True)
    if chosen.report and not _played_file(folder, begin, settings).exists():
        raise SystemExit(NOTHING)
    started = play(folder, START, begin, "start", settings)
    found: dict[str, dict[int, Outcome]] = {}
    # Seeds outside, so that an interrupted benchmark can compare all arms as early as possible.
    for experiment in sorted(planned, key=lambda one: one.seed):
        if chosen.arms and experiment.variant not in chosen.arms:
            continue
        outcome = train(experiment, settings, chosen.report)
        if outcome is not None:
            found.setdefault(experiment.variant, {})[experiment.seed] = outcome
    if not found:
        raise SystemExit(NOTHING)
    write_report(found, started, settings, planned)


if __name__ == "__main__":
    main()
