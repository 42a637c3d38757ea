"""Two processes over gloo: the same groups on both, each training its half, one set of weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_two_ranks_choose_the_same_groups_and_stay_equal(root: Path, tmp_path: Path) -> None:
    script = root / "tests" / "train" / "two_ranks.py"
    # `accelerate launch --cpu --num_processes 2` would run one process and say nothing.
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = subprocess.run(
        [sys.executable, *command, str(script), str(tmp_path)],
        cwd=root,
        env={
            **os.environ,
            "ACCELERATE_USE_CPU": "1",
            "PYTHONPATH": f"{root / 'src'}:{script.parent}",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1))
    assert first["world"] == second["world"] == 2
    assert first["chosen"] == second["chosen"]
    assert all(uid % 3 == 0 for step in first["chosen"] for uid in step), "informative ones"
    assert not set(first["rolled"]) & set(second["rolled"]), "each rolls its own prompts"
    assert first["trained"] != second["trained"]
    assert first["weights"] == second["weights"]
