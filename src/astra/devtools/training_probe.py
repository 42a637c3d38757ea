"""A few steps of each training stage by two states of the code, compared to the byte.

Each side has a folder of its own with its code and its parameters, and the inputs of the working
directory. What a step count changes is set below; everything else is as the stage trains.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from astra.devtools.training_lock import TrainingLockError
from astra.settings import PARAMS

FEWER: Mapping[str, Mapping[str, Any]] = {
    "sft": {"max_steps": 40, "eval_steps": 40, "save_steps": 40},
    "rl": {"steps": 2, "schedule": [], "warmup_steps": 0, "dev_arenas": 8, "save_steps": 2},
    "bench": {"arenas": 16, "resamples": 100, "suites": []},
}
"""Values that a probe puts in place of larger ones. After 40 steps of fine-tuning the tiny policy
calls tools, so that two steps of reinforcement learning have rewards to learn from."""
CODE = ("src", "stages")
GRAPH = (".dvcignore", "dvc.yaml", "dvc.lock")
STAGE_S = 1800
"""A stage of a probe that has not ended after so many seconds hangs."""
Curves = dict[str, dict[int, str]]


@dataclass(frozen=True)
class Products:
    """What a stage wrote in a probe: SHA-256 of each file, and its curves by name and step."""

    files: dict[str, str]
    curves: Curves

    def losses(self) -> list[float]:
        return [float(value) for _, value in sorted(self.curves.get("loss", {}).items())]


class Side:
    """A state of the code in a folder of its own. ``name`` is what messages call it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder

    def link(self, inputs: Iterable[str]) -> None:
        """Let the stages read the working directory's inputs, and let ``FEWER`` steps do."""
        for path in inputs:
            link = self.folder / path
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(Path(path).absolute())
        (self.folder / "dvc.yaml").touch()  # what the folder of runs is found by
        file = self.folder / PARAMS
        params = yaml.safe_load(file.read_text(encoding="utf-8"))
        for stage, values in FEWER.items():
            shorten(params.get(stage, {}), values)
        file.write_text(yaml.safe_dump(params, sort_keys=False), encoding="utf-8")

    def run(self, stage: str, outputs: Iterable[str]) -> Products:
        """Run a stage. TrainingLockError where it fails, with the end of what it said, and where
        it makes nothing: nothing and nothing are no proof.
        """
        command = [sys.executable, f"stages/{stage}.py"]
        try:
            done = subprocess.run(
                command, cwd=self.folder, env=self._environment(), text=True, check=False,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=STAGE_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise TrainingLockError(f"{self.name}: stage {stage} takes over {STAGE_S} s") from None
        if done.returncode:
            raise TrainingLockError(
                f"{self.name}: stage {stage} fails in the probe, exit {done.returncode}; it has "
                f"to be trained (dvc repro)\n{done.stdout[-3000:]}"
            )
        files = {str(file): digest([self.folder / file]) for file in self._files(outputs)}
        if not files:
            raise TrainingLockError(f"{self.name}: stage {stage} makes nothing in the probe")
        return Products(files, read_curves(self.folder / "plots" / stage))

    def weights(self, stage: str) -> str:
        """SHA-256 of a trained policy's weights."""
        return digest(sorted((self.folder / "models" / stage).glob("*.safetensors")))

    def scores(self) -> dict[str, float]:
        """Mean F1 of each checkpoint in the probe's arenas."""
        document = json.loads((self.folder / "metrics/bench.json").read_text())
        checkpoints = document["checkpoints"]
        return {name: found["scores"]["f1"]["mean"] for name, found in checkpoints.items()}

    def _files(self, outputs: Iterable[str]) -> Iterator[Path]:
        for output in outputs:
            place = self.folder / output
            found = sorted(place.rglob("*")) if place.is_dir() else [place]
            yield from (file.relative_to(self.folder) for file in found if file.is_file())

    def _environment(self) -> dict[str, str]:
        bins = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DVC_")}
        return kept | {
            "PATH": bins,
            "PYTHONPATH": str(self.folder / "src"),
            "ASTRA_CACHE": str(self.folder / ".astra"),
            "MLFLOW_TRACKING_URI": f"sqlite:///{self.folder / 'mlflow.db'}",
            "OMP_WAIT_POLICY": "passive",
            "TOKENIZERS_PARALLELISM": "false",
        }


def shorten(block: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Put ``values`` into a block of parameters where it has larger ones, or lists."""
    for key, value in values.items():
        if key not in block:
            continue  # older code knows no such parameter
        larger = not isinstance(block[key], int) or block[key] > value
        block[key] = value if larger else block[key]


def snapshot(folder: Path) -> Side:
    """The working directory's code as it is now; edits in the meantime change nothing."""
    for name in CODE:
        shutil.copytree(name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(PARAMS, folder / PARAMS)
    return Side("the working directory", folder)


def committed(revision: str, folder: Path) -> Side:
    """The code of a commit, and its graph. TrainingLockError where git does not know it."""
    names = [*CODE, *GRAPH, str(PARAMS)]
    done = subprocess.run(["git", "archive", revision, *names], capture_output=True, check=False)
    if done.returncode:
        text = done.stderr.decode(errors="replace").strip()
        raise TrainingLockError(
            f"git has no code of {revision!r}: {text}; a shallow clone gets it by "
            "`git fetch --unshallow`, --since names another commit"
        )
    folder.mkdir(parents=True)
    subprocess.run(["tar", "-x"], input=done.stdout, cwd=folder, check=True)
    (folder / ".dvc").mkdir()
    (folder / ".dvc" / "config").write_text("[core]\n    no_scm = true\n")
    return Side(revision[:12], folder)


def difference(stage: str, old: Products, new: Products) -> str:
    """Where two sides of a stage part, in a line; empty where they made the same bytes."""
    if old.files == new.files:
        return ""
    steps = sorted(
        {step for side in (old, new) for curve in side.curves.values() for step in curve}
    )
    for step in steps:
        for name in sorted(old.curves | new.curves):
            values = [side.curves.get(name, {}).get(step, "nothing") for side in (old, new)]
            if values[0] != values[1]:
                return f"{stage} parts at step {step}: {name} was {values[0]}, is {values[1]}"
    names = sorted(
        name for name in old.files | new.files if old.files.get(name) != new.files.get(name)
    )
    curves = "its curves agree at every step, but " if steps else ""
    return f"{stage} parts: {curves}{', '.join(names)} differ"


def read_curves(folder: Path) -> Curves:
    """The tables ``step,<name>`` of a folder; tables of other columns are no curves."""
    curves: Curves = {}
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as handle:
            rows = list(csv.reader(handle))
        if rows and rows[0][0] == "step":
            curves[path.stem] = {int(row[0]): row[1] for row in rows[1:]}
    return curves


def digest(files: Iterable[Path]) -> str:
    total = hashlib.sha256()
    for file in files:
        with file.open("rb") as handle:
            total.update(hashlib.file_digest(handle, "sha256").digest())
    return total.hexdigest()
