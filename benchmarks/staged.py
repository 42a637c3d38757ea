"""The real stages in a working directory of their own, for benchmarks that train.

What exists is not run again, so an interrupted benchmark goes on where it stopped: a stage that
was killed resumes from its newest checkpoint.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
INPUTS = (
    "data/sft_set.parquet",
    "data/envs_merged.parquet",
    "policies",
    "stages",
    "src",
    "sources",
)


def link_inputs(folder: Path, inputs: Sequence[str] = INPUTS) -> None:
    """Link what stages read; what the folder has already stays."""
    for name in inputs:
        link_to(folder / name, ROOT / name)


def link_to(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and not link.exists():
        link.symlink_to(target)


def composed(overrides: Sequence[str]) -> dict[str, Any]:
    """``conf/`` with ``overrides``, validated like any params.yaml."""
    # Not at the top: benchmarks/scale.py measures the memory of processes that import this file.
    from astra.devtools import params

    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "params.yaml"
        params.compose(file, list(overrides))
        return yaml.safe_load(file.read_text())


def keyed(work: Path, name: str, *facts: Any) -> Path:
    """A folder of ``work`` for one run: other ``facts`` (JSON-able), another folder."""
    from astra.records.base import content_id  # see ``composed``

    return work / f"{name}-{content_id(list(facts))[:10]}"


def children_cpu_s() -> float:
    """CPU seconds of all children that have ended, theirs included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(folder: Path, stage: str, product: Path, **environment: str) -> dict[str, float]:
    """Run a stage unless its product exists; wall and CPU seconds, sandbox processes included."""
    record = folder / f"{stage}.seconds.json"
    if not (folder / product).exists() or not record.exists():
        print(f"[{folder.parent.name}] {folder.name}: {stage}", flush=True)
        before, start = children_cpu_s(), time.perf_counter()
        variables = os.environ | {"PYTHONPATH": str(ROOT / "src")} | environment
        command = [sys.executable, f"stages/{stage}.py"]
        subprocess.run(command, cwd=folder, env=variables, check=True)
        found = {"wall_s": time.perf_counter() - start, "cpu_s": children_cpu_s() - before}
        record.write_text(json.dumps({name: round(value, 1) for name, value in found.items()}))
    return json.loads(record.read_text())
