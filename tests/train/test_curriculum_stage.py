"""Stage rl with a band and a refresh: run twice, and killed, it trains in the same arenas."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from processes import TIMEOUT_S, last_json, run_python, script

pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT_S + 60)]


@pytest.fixture(scope="module")
def report(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All runs in one process, which imports torch once."""
    folder = tmp_path_factory.mktemp("curriculum")
    environment = {"OMP_WAIT_POLICY": "passive", "TOKENIZERS_PARALLELISM": "false",
                   "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}"}  # fmt: skip
    runs = script(root, "curriculum_runs.py")
    return last_json(run_python(root, runs, str(root), str(folder), **environment))


def test_the_band_leaves_out_what_is_solved_and_the_refresh_repeats_what_fails(
    report: dict[str, Any],
) -> None:
    made = report["whole"]["made"]
    rows: list[dict[str, Any]] = made["curriculum"]
    assert {row["phase"] for row in rows} == {1}
    assert {row["solver"] for row in rows} == {"step 2"}
    weights: dict[str, int] = report["whole"]["weights"]
    assert {row["arena_id"] for row in rows} == {*weights}
    for row in rows:
        solved = row["passes"] == row["rollouts"] == 2
        assert row["weight"] == (0 if solved else weights[row["arena_id"]]), row
    left_out = sum(row["weight"] == 0 for row in rows)
    assert 0 < left_out < len(rows)
    assert max(row["weight"] for row in rows) > 1, "what fails comes oftener"
    assert made["metrics"]["left_out_by_band"] == left_out
    assert made["metrics"]["steps"] == 4
    never = made["metrics"]["refreshed_by"]["trait:pages"]
    assert never["failed"] == never["tried"] > 0


@pytest.mark.parametrize(
    "run",
    [
        "again", "while the band is judged", "before the phase has a checkpoint",
        "between its steps",
    ],
)  # fmt: skip
def test_a_run_that_is_repeated_or_killed_ends_the_same(report: dict[str, Any], run: str) -> None:
    assert report[run]["killed"] == (0 if run == "again" else -signal.SIGKILL)
    assert report[run]["again"] == 0
    assert report[run]["made"] == report["whole"]["made"]
