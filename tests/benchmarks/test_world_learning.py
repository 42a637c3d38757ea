"""What is compared where seeds lack, what RL is offered, and what a folder that was begun otherwise
is good for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from astra.arena.worlds import goal_of
from astra.records.environment import Arena
from astra.records.world import World, WorldShape
from astra.store.tables import read_records, write_records
from world_goals import worlds_and_goals

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


@pytest.mark.parametrize("arm", ["rl", "own_names", "alone"])
def test_rl_is_offered_goals_whose_worlds_are_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arm: str
) -> None:
    """In copies under other names but for one arm, without users in another."""
    world, goals = worlds_and_goals("veterinary_clinic", WorldShape.SMALL, 24, variant=1)
    made, data = tmp_path / "made/data", tmp_path / "arm"
    made.mkdir(parents=True)
    data.mkdir()
    write_records(made / "worlds.parquet", [world], World)
    write_records(made / "goals.parquet", sorted(goals, key=lambda one: one.id), Arena)
    monkeypatch.setattr(world_learning, "DATA", tmp_path / "made")
    monkeypatch.setattr(world_learning, "OFFERED", 6)
    world_learning.offer(data, arm)
    arenas = list(read_records(data / "envs_merged.parquet", Arena))
    assert len(arenas) == 6
    worlds = {one.id for one in read_records(data / "worlds.parquet", World)}
    assert {one.world_id for one in arenas} <= worlds
    assert ({one.world_id for one in arenas} == {world.id}) == (arm == "own_names")
    assert {goal_of(one).script is None for one in arenas} == {arm == "alone"}
