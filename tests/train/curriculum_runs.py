"""Stage ``rl`` with a band and a refresh, whole and killed: run by test_curriculum_stage.py.

Arguments: the repository, a folder. Fine-tunes the tiny policy by stage ``sft`` first, so that it
solves some arenas. Every run is the stage's own script in a forked child, in a working directory
of its own; what is printed last is JSON: by run, how the killed try ended and what was made.
"""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import yaml
from kill_points import child, kill_at
from training_world import make_arena, make_sample
from trl.trainer.grpo_trainer import GRPOTrainer

from astra.devtools.params import compose
from astra.records.curriculum import CurriculumArena
from astra.records.environment import Arena, Trait
from astra.records.qa import Answer, AnswerType
from astra.records.trajectory import SFTSample
from astra.store.tables import read_records, write_records
from astra.train import schedule
from astra.train.curriculum import Failures, weights

ARENAS = schedule.ARENAS_AT_ONCE + 4
"""More than the band judges at once."""
SCHEDULE = [
    {"steps": 2},
    {"steps": 2, "band": {"rollouts": 2, "most": 1}, "refresh": True, "reset_optimizer": True},
]
OVERRIDES = (
    "scale=test", "sft.max_steps=240", "sft.save_steps=240", "sft.eval_steps=240",
    "rl.save_steps=1", "rl.dev_every=9", "rl.max_rounds=3",
)  # fmt: skip
NEVER = Trait.PAGES
"""The trait of arenas that nobody solves."""
TRAITS: Sequence[tuple[Trait, ...]] = ((NEVER,), (Trait.TWINS,), (Trait.FORMATS,), ())
POINTS: dict[str, Callable[[], None]] = {
    "while the band is judged": lambda: kill_at(schedule, "_rolled", 2),
    "before the phase has a checkpoint": lambda: kill_at(GRPOTrainer, "training_step", 3),
    "between its steps": lambda: kill_at(GRPOTrainer, "training_step", 4),
}  # fmt: skip


def prepare(root: Path, folder: Path) -> None:
    """A working directory with code, parameters and data."""
    (folder / "data").mkdir(parents=True)
    (folder / "dvc.yaml").touch()  # what the folder of runs is found by
    for name in ("stages", "src", "policies"):
        (folder / name).symlink_to(root / name)
    file = folder / "params.yaml"
    with chdir(root):
        compose(file, [*OVERRIDES])
    params = yaml.safe_load(file.read_text())
    params["rl"]["schedule"] = SCHEDULE
    file.write_text(yaml.safe_dump(params, sort_keys=False))
    samples = [make_sample(seed) for seed in range(600)]
    samples += [make_sample(seed, "eval") for seed in range(600, 610)]
    write_records(folder / "data/sft_set.parquet", samples, SFTSample)
    write_records(folder / "data/envs_merged.parquet", map(arena, range(ARENAS)), Arena)


def arena(seed: int) -> Arena:
    traits = TRAITS[seed % len(TRAITS)]
    changes: dict[str, Any] = {"traits": traits}
    if NEVER in traits:
        changes["final_answer"] = Answer(type=AnswerType.NUMBER, value=-1)
    return make_arena(seed).model_copy(update=changes)


def run_stage(folder: Path, stage: str, arm: Callable[[], None] = lambda: None) -> int:
    """Exit status of a stage's script in a child that ``arm`` has prepared."""

    def work() -> None:
        os.chdir(folder)
        arm()
        script = f"stages/{stage}.py"
        sys.argv = [script]
        runpy.run_path(script, run_name="__main__")

    return child(work)


def copy_of(first: Path, folder: Path) -> Path:
    """Another working directory with the same inputs and nothing trained by ``rl``."""
    folder.mkdir()
    for name in ("stages", "src", "policies", "data", "params.yaml", "dvc.yaml"):
        (folder / name).symlink_to(first / name)
    (folder / "models").mkdir()
    (folder / "models/sft").symlink_to(first / "models/sft")
    return folder


def made(folder: Path) -> dict[str, Any]:
    """What the stage left: hashes of the policy and the curriculum, the curriculum, metrics."""
    model = folder / "models/rl"
    rows = read_records(model / "curriculum.parquet", CurriculumArena)
    return {
        "files": {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in (*sorted(model.glob("*.safetensors")), model / "curriculum.parquet")
        },
        "curriculum": [row.model_dump(mode="json") for row in rows],
        "metrics": json.loads((folder / "metrics/rl.json").read_text()),
    }


def main(root: Path, folder: Path) -> None:
    first = folder / "first"
    prepare(root, first)
    assert run_stage(first, "sft") == 0
    report: dict[str, Any] = {}
    for number, (name, arm) in enumerate({"whole": None, "again": None, **POINTS}.items()):
        place = copy_of(first, folder / f"run{number}")
        killed = 0 if arm is None else run_stage(place, "rl", arm)
        again = run_stage(place, "rl")
        report[name] = {"killed": killed, "again": again, "made": made(place) if not again else {}}
    counted = report["whole"]["made"]["metrics"]["refreshed_by"]
    by = {what: {name: one[what] for name, one in counted.items()} for what in ("tried", "failed")}
    report["whole"]["weights"] = weights([*map(arena, range(ARENAS))], Failures(**by))
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
