"""What is compared where seeds lack, what RL is offered, and what a folder that was begun otherwise
is good for."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from astra.arena.worlds import goal_of
from astra.records.environment import Arena
from astra.records.world import World, WorldShape
from astra.store.tables import read_records, write_records
from world_goals import worlds_and_goals

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import world_learning
from world_runs import Score, WorldRun, keep, kept


def test_only_seeds_that_both_have_are_compared() -> None:
    after = {0: {"a": 1.0, "b": 0.0}, 1: {"a": 1.0, "b": 1.0}}
    before = {1: {"a": 0.0, "b": 1.0}, 2: {"a": 1.0, "b": 1.0}}
    found = world_learning.difference(after, before)
    assert (found["mean"], found["n"], found["seeds"]) == (0.5, 2, [1])
    assert world_learning.difference(after, {3: {"a": 1.0}}) == {}


def test_a_policy_is_scored_greedily_and_as_it_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal b succeeds greedily alone, a as it is sampled alone."""
    asked: list[float] = []

    def played(
        _policy: Path, goals: list[str], _tries: int, temperature: float
    ) -> list[SimpleNamespace]:
        asked.append(temperature)
        won = "a" if temperature else "b"
        return [
            SimpleNamespace(
                arena=SimpleNamespace(id=goal), score=SimpleNamespace(success=goal == won)
            )
            for goal in goals
        ]

    monkeypatch.setattr(world_learning, "played", played)
    monkeypatch.setattr(world_learning, "drawn", lambda _split: ["a", "b"])
    monkeypatch.setattr(world_learning, "credit", lambda _rollout: 0.25)
    found = world_learning.scored(tmp_path / "arm", Path("policy"))
    assert found == {"a": Score(0.0, 1.0, 0.25), "b": Score(1.0, 0.0, 0.25)}
    assert world_learning.scored(tmp_path / "arm", Path("policy")) == found
    assert asked == [0.0, 1.0], "what exists is not played again"


def test_a_run_is_kept_for_other_machines_until_its_recipe_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time nothing is trained or played; another arm's run stays beside it."""
    file, trained = tmp_path / "runs.jsonl", list[str]()
    other = WorldRun(arm="alone", seed=0, recipe="r", cpu_s=1.0, buys=None, along={}, goals={})
    keep(other, file)

    def train(arm: str, seed: int) -> Path:
        trained.append(f"{arm}-{seed}")
        return tmp_path

    goals = {"a": Score(1.0, 0.0, 0.3333)}
    for name, value in {
        "kept": lambda: kept(file), "keep": lambda run: keep(run, file), "trained": train,
        "scored": lambda *_: goals, "along": lambda *_: {"dev": {"success": 0.5}},
        "cpu_s": lambda _: 90.0, "step_s": lambda: 4.0, "recipe_of": lambda _: "now",
    }.items():  # fmt: skip
        monkeypatch.setattr(world_learning, name, value)
    run = world_learning.run_of("rl", 3)
    assert (run.cpu_s, run.buys) == (90.0, 23)
    assert run.goals == goals
    assert world_learning.run_of("rl", 3) == run
    assert kept(file) == {("alone", 0): other, ("rl", 3): run}
    assert trained == ["rl-3"]
    monkeypatch.setattr(world_learning, "recipe_of", lambda _: "another")
    assert world_learning.run_of("rl", 3).recipe == "another"
    assert trained == ["rl-3", "rl-3"]


def test_a_recipe_is_that_of_its_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_learning, "drawn", lambda _split: [SimpleNamespace(id="a")])
    before = {arm: world_learning.recipe_of(arm) for arm in ("start", "rl", "alone", "control")}
    assert len(set(before.values())) == 4
    monkeypatch.setattr(world_learning, "OFFERED", 3)
    after = {arm: world_learning.recipe_of(arm) for arm in before}
    assert {arm for arm in before if before[arm] != after[arm]} == {"rl", "alone", "control"}
    folder = world_learning.arm_folder("start", 0)
    limits = [one for one in world_learning.RL if "max_turns" not in one]
    monkeypatch.setattr(world_learning, "RL", (*limits, "rl.limits.max_turns=2"))
    short = {arm: world_learning.recipe_of(arm) for arm in before}
    assert all(after[arm] != short[arm] for arm in before), "all play under these limits"
    assert world_learning.arm_folder("start", 0) != folder, "no result of the other is found there"
    monkeypatch.setattr(world_learning, "drawn", lambda _split: [SimpleNamespace(id="b")])
    assert not {*after.values()} & {world_learning.recipe_of(arm) for arm in before}


def test_an_episode_that_was_lost_is_no_failure_of_the_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from astra.rollout.driver import RolloutDriver

    lost = SimpleNamespace(score=None, problem="no room in time")
    monkeypatch.setattr(RolloutDriver, "run", lambda *_: [lost])
    with pytest.raises(SystemExit, match=r"1 of 1 episodes .* have no score.*no room in time"):
        world_learning.played(world_learning.START, [], 1, 0.0)


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
