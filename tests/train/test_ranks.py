"""Processes over gloo: the same groups on all, each training its share, one set of weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from processes import TIMEOUT_S, run_python, script


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 60)
@pytest.mark.parametrize("ahead", [False, True])
def test_two_ranks_choose_the_same_groups_and_stay_equal(
    root: Path, tmp_path: Path, ahead: bool
) -> None:
    """Three groups on two ranks; rolled ahead, ranks agree on them while gradients are reduced."""
    # `accelerate launch --cpu --num_processes 2` would run one process and say nothing.
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    ranks = script(root, "two_ranks.py")
    options = [str(tmp_path), *(["ahead"] if ahead else [])]
    run_python(root, *launch, ranks, *options, ACCELERATE_USE_CPU="1")
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1))
    assert first["world"] == second["world"] == 2
    assert first["chosen"] == second["chosen"]
    assert first["staleness"] == second["staleness"] == [0.0, *[float(ahead)] * 2]
    assert all(uid % 3 == 0 for step in first["chosen"] for uid in step), "informative ones"
    assert not set(first["rolled"]) & set(second["rolled"]), "each rolls its own prompts"
    for one in (first, second):
        mine = [uid for step in one["chosen"] for uid in step if uid in one["rolled"]]
        assert one["readable"] == mine != [], "transcripts stay on their rank, and stay there"
    assert first["trained"] != second["trained"]
    assert first["weights"] == second["weights"]


@pytest.mark.slow
@pytest.mark.timeout(3 * TIMEOUT_S)
def test_the_gradient_is_the_same_on_one_two_and_four_ranks(root: Path, tmp_path: Path) -> None:
    """The same batch of groups, whether ranks divide the groups or only the samples."""
    found: dict[int, list[dict[str, torch.Tensor]]] = {}
    for world in (1, 2, 4):
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(world)]
        ranks = script(root, "rank_gradients.py")
        run_python(
            root, *(launch if world > 1 else []), ranks, str(tmp_path), ACCELERATE_USE_CPU="1"
        )
        files = [tmp_path / f"rank-{rank}-of-{world}.pt" for rank in range(world)]
        found[world] = [torch.load(file) for file in files]
    (alone,) = found[1]
    for world, ranks in found.items():
        for one, (case, gradient) in ((one, item) for one in ranks for item in alone.items()):
            difference = (one[case] - gradient).norm() / gradient.norm()
            assert gradient.norm() > 0
            assert difference <= 1e-5, f"{case}: {difference} on {world} ranks"
