"""The Python lines of docs/mlflow.md list runs, compare two and print a curve."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from pages import blocks

STORED = """
import mlflow

mlflow.set_tracking_uri("sqlite:///mlflow.db")
mlflow.set_experiment("astra/rl")
for name, reward in (("workspace", "f1"), ("recall", "recall")):
    with mlflow.start_run(run_name=name):
        mlflow.log_params({"reward": reward, "seed": 0})
        for step in (20, 40):
            mlflow.log_metric("dev/reward", step / 100, step=step)
"""


def test_runs_are_read_without_a_display(root: Path, tmp_path: Path) -> None:
    (shown,) = (one.text for one in blocks(root / "docs/mlflow.md") if one.language == "python")
    printed = subprocess.run(
        [sys.executable, "-c", STORED + shown],
        cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300,
    ).stdout.splitlines()  # fmt: skip
    assert [line.split()[2] for line in printed[1:3]] == ["recall", "workspace"]
    (parameters,) = (line.split() for line in printed if line.startswith("params."))
    assert parameters == ["params.reward", "recall", "f1"], "the seed does not differ"
    assert printed[-1] == "[(20, 0.2), (40, 0.4)]"
