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
import time
from collections.abc import Sequence
from pathlib import Path

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


def run(folder: Path, stage: str, product: Path, **environment: str) -> dict[str, float]:
    """Run a stage unless its product exists; wall and CPU seconds, sandbox processes included."""
    record = folder / f"{stage}.seconds.json"
    if not (folder / product).exists() or not record.exists():
        print(f"[{folder.parent.name}] {folder.name}: {stage}", flush=True)
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        variables = os.environ | {"PYTHONPATH": str(ROOT / "src")} | environment
        command = [sys.executable, f"stages/{stage}.py"]
        subprocess.run(command, cwd=folder, env=variables, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        found = {"wall_s": time.perf_counter() - start, "cpu_s": cpu}
        record.write_text(json.dumps({name: round(value, 1) for name, value in found.items()}))
    return json.loads(record.read_text())
