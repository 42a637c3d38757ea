"""ACEBench's official runner and the loop here agree, task by task, on scripted models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CLONE, PYTHON = "ASTRA_ACEBENCH", "ASTRA_ACEBENCH_PYTHON"


@pytest.mark.parametrize("model", ["oracle", "floor", "careless"])
def test_the_official_runner_agrees_on_all_fifty(bench_env: Path, root: Path, model: str) -> None:
    clone, python = os.environ.get(CLONE), os.environ.get(PYTHON)
    if not clone or not python:
        pytest.skip(
            f"{CLONE} names no clone of ACEBench, or {PYTHON} no Python that runs it "
            "(benchmarks/acebench_official.py says how to make them)"
        )
    ran = subprocess.run(
        [sys.executable, root / "benchmarks/acebench_official.py", "--official", clone,
         "--python", python, "--model", model],
        capture_output=True, text=True, timeout=800,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert json.loads(ran.stdout)["agree"] == 50
