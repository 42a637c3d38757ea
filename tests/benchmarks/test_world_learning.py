"""What is compared where seeds lack, and what a folder that was begun otherwise is good for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import world_learning


def test_only_seeds_that_both_have_are_compared() -> None:
    after = {0: {"a": 1.0, "b": 0.0}, 1: {"a": 1.0, "b": 1.0}}
    before = {1: {"a": 0.0, "b": 1.0}, 2: {"a": 1.0, "b": 1.0}}
    found = world_learning.difference(after, before)
    assert (found["mean"], found["n"], found["seeds"]) == (0.5, 2, [1])
    assert world_learning.difference(after, {3: {"a": 1.0}}) == {}


def test_a_folder_of_other_parameters_is_refused(tmp_path: Path) -> None:
    world_learning.prepare(tmp_path, ["sft.max_steps=5"])
    world_learning.prepare(tmp_path, ["sft.max_steps=5"])
    with pytest.raises(SystemExit, match="begun with other parameters"):
        world_learning.prepare(tmp_path, ["sft.max_steps=6"])
    assert yaml.safe_load((tmp_path / "params.yaml").read_text())["sft"]["max_steps"] == 5
