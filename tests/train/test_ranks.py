"""Two processes over gloo: the same groups on both, each training its half, one set of weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from processes import TIMEOUT_S, run_python, script


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 60)
def test_two_ranks_choose_the_same_groups_and_stay_equal(root: Path, tmp_path: Path) -> None:
    # `accelerate launch --cpu --num_processes 2` would run one process and say nothing.
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    ranks = script(root, "two_ranks.py")
    run_python(root, *launch, ranks, str(tmp_path), ACCELERATE_USE_CPU="1")
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1))
    assert first["world"] == second["world"] == 2
    assert first["chosen"] == second["chosen"]
    assert all(uid % 3 == 0 for step in first["chosen"] for uid in step), "informative ones"
    assert not set(first["rolled"]) & set(second["rolled"]), "each rolls its own prompts"
    for one in (first, second):
        mine = [uid for step in one["chosen"] for uid in step if uid in one["rolled"]]
        assert one["readable"] == mine != [], "transcripts stay on their rank, and stay there"
    assert first["trained"] != second["trained"]
    assert first["weights"] == second["weights"]
