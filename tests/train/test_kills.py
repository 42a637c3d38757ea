"""SIGKILL at every point that matters: the rerun resumes and ends like an uninterrupted run."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from processes import TIMEOUT_S, last_json, run_python, script


@pytest.fixture(scope="module")
def report(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All runs in one process, which imports torch once."""
    folder = tmp_path_factory.mktemp("kills")
    return last_json(run_python(root, script(root, "kill_points.py"), str(folder)))


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 60)
@pytest.mark.parametrize("stage", ["sft", "rl"])
def test_a_killed_run_resumes_and_ends_the_same(report: dict[str, Any], stage: str) -> None:
    whole = report[stage].pop("none")["made"]
    assert whole is not None
    assert whole["steps"] == {"sft": 5, "rl": 6}[stage]
    if stage == "rl":
        assert len({weight for _, weight in whole["drawn"]}) > 1, "some arenas came oftener"
        assert whole["refreshed by"]["trait:pages"]["failed"] > 0
    assert len(report[stage]) >= 6
    for point, runs in report[stage].items():
        assert runs["killed"] == -signal.SIGKILL, point
        assert runs["again"] == 0, point
        assert runs["made"] == whole, point
