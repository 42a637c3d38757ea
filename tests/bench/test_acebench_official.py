"""ACEBench's official runner and the loop here agree, task by task, on scripted models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("model", ["oracle", "floor", "careless"])
def test_the_official_runner_agrees_on_all_fifty(bench_env: Path, root: Path, model: str) -> None:
    clone, python = os.environ.get("ASTRA_ACEBENCH"), root / ".venv-acebench/bin/python"
    if not clone:
        pytest.skip(
            "ASTRA_ACEBENCH names no clone of ACEBench (benchmarks/acebench_official.py says more)"
        )
    if not python.exists():
        pytest.skip(f"no environment of ACEBench's runner at {python}: `make acebench-env`")
    ran = subprocess.run(
        [sys.executable, root / "benchmarks/acebench_official.py", "--official", clone,
         "--python", python, "--model", model],
        capture_output=True, text=True, timeout=800,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert json.loads(ran.stdout)["agree"] == 50
