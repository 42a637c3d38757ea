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
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import yaml

ROOT = Path(__file__).resolve().parents[1]
INPUTS = (
    "data/sft_set.parquet",
    "data/envs_merged.parquet",
    "policies",
    "stages",
    "src",
    "sources",
    "contamination",
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


def cpu_seconds(process: psutil.Process) -> float:
    """CPU seconds of a process and its descendants, those that have ended among them."""
    total = 0.0
    try:
        for one in (process, *process.children(recursive=True)):
            times = one.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    except psutil.Error:
        pass  # one ended meanwhile; what was read so far is a lower bound, and the next look higher
    return total


def run(folder: Path, stage: str, product: Path, **environment: str) -> dict[str, float]:
    """Run a stage unless its product exists; wall and CPU seconds, sandbox processes included.

    What earlier attempts used counts too; of one that was killed with this process, all but the
    last five seconds.
    """
    record, tried = (folder / f"{stage}.{name}.json" for name in ("seconds", "tried"))
    if not (folder / product).exists() or not record.exists():
        print(f"[{folder.parent.name}] {folder.name}: {stage}", flush=True)
        variables = os.environ | {"PYTHONPATH": str(ROOT / "src")} | environment
        _tried([sys.executable, f"stages/{stage}.py"], folder, variables, tried)
        tried.rename(record)
    return json.loads(record.read_text())


def _tried(command: list[str], folder: Path, variables: dict[str, str], record: Path) -> None:
    """Run a command, and keep what it and the attempts before it used in ``record``."""
    spent = json.loads(record.read_text()) if record.exists() else {"wall_s": 0.0, "cpu_s": 0.0}
    before, start = children_cpu_s(), time.perf_counter()

    def note(cpu_s: float) -> None:
        used = {"wall_s": time.perf_counter() - start, "cpu_s": cpu_s}
        total = {name: round(spent[name] + value, 1) for name, value in used.items()}
        part = record.with_suffix(".part")
        part.write_text(json.dumps(total))
        part.replace(record)

    process = psutil.Popen(command, cwd=folder, env=variables)
    most = 0.0
    while process.poll() is None:
        most = max(most, cpu_seconds(process))
        note(most)
        with suppress(psutil.TimeoutExpired):
            process.wait(5)
    note(children_cpu_s() - before)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
