"""Compares dvc.lock with the one in git: did a rebuild reproduce the committed data?

    python -m astra.devtools.reproduced

Data stages must agree to the byte. Trained weights depend on the machine's floating-point
kernels, so what follows from them (sft, rl, bench) is not compared.
"""

from __future__ import annotations

import logging
import subprocess
from pathlib import Path
from typing import Any

import yaml

from astra.devtools.training_lock import TRAINED
from astra.errors import AstraError
from astra.stage import run_stage

log = logging.getLogger("astra")


def outputs(lock: dict[str, Any]) -> dict[str, str]:
    """Output path -> hash, of the data stages."""
    return {
        out["path"]: out["md5"]
        for name, stage in lock["stages"].items()
        if name not in TRAINED
        for out in stage.get("outs", [])
    }


def main() -> None:
    shown = subprocess.run(
        ["git", "show", "HEAD:dvc.lock"], capture_output=True, text=True, check=False
    )
    if shown.returncode:
        raise AstraError(f"no committed dvc.lock to compare with: {shown.stderr.strip()}")
    committed = outputs(yaml.safe_load(shown.stdout))
    rebuilt = outputs(yaml.safe_load(Path("dvc.lock").read_text(encoding="utf-8")))
    differing = sorted(
        path for path in committed | rebuilt if committed.get(path) != rebuilt.get(path)
    )
    if differing:
        raise AstraError(f"the rebuild differs from the committed dvc.lock in {differing}")
    log.info("%d outputs of the data stages reproduced to the byte", len(committed))


if __name__ == "__main__":
    run_stage("reproduced", main)
