"""SIGKILL at every point that matters: the rerun resumes and ends like an uninterrupted run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def report(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All runs in one process, which imports torch once."""
    script = root / "tests" / "train" / "kill_points.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path_factory.mktemp("kills"))],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}:{script.parent}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["sft", "rl"])
def test_a_killed_run_resumes_and_ends_the_same(report: dict[str, Any], stage: str) -> None:
    whole = report[stage].pop("none")["made"]
    assert whole is not None
    assert whole["steps"] == {"sft": 5, "rl": 6}[stage]
    assert len(report[stage]) >= 6
    for point, runs in report[stage].items():
        assert runs["killed"] == -signal.SIGKILL, point
        assert runs["again"] == 0, point
        assert runs["made"] == whole, point
