"""Evaluation on development arenas: when, by which weights, and by whom."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from test_groups import rollout
from training_world import make_arena
from transformers import TrainerControl, TrainerState

from astra.records.qa import Split
from astra.rollout.engine import Sampling
from astra.rollout.live import EpisodeJob, Rollout
from astra.stage import Progress
from astra.tracking.mlflow import Run
from astra.train import rl_watch
from astra.train.collector import Trouble
from astra.train.curves import Curves
from astra.train.errors import TrainingError
from astra.train.rl_watch import RLWatcher
from configs import rl_config

DEV = [make_arena(seed, Split.DEV) for seed in range(5)]
REWARDS = {arena.id: number / 7 for number, arena in enumerate(DEV)}


class Recorded:
    """A driver whose rewards are the arenas' own; it writes down what it is asked, in order."""

    infra_retries, tool_seconds, tool_calls = 0, 0.0, 0

    def __init__(self, faults: dict[str, int]) -> None:
        self.faults = faults
        self.asked: list[Any] = []
        self.lost: set[str] = set()
        """Arenas whose rollouts our machinery loses, after two more attempts."""

    def weights_are(self, version: int) -> None:
        self.asked.append(version)

    def run(self, jobs: list[EpisodeJob], sampling: Sampling) -> list[Rollout]:
        assert sampling.temperature == 0.0
        self.asked.append([job.arena.id for job in jobs])
        self.infra_retries += 2 * sum(job.arena.id in self.lost for job in jobs)
        rewards = [None if job.arena.id in self.lost else REWARDS[job.arena.id] for job in jobs]
        return [
            rollout(job, reward, calls=1 + len(job.arena.id) % 3)
            for job, reward in zip(jobs, rewards, strict=True)
        ]


class Together:
    """Ranks that are threads."""

    def __init__(self, world: int, rank: int, told: list[Any], barrier: threading.Barrier) -> None:
        self.world, self.rank, self._told, self._barrier = world, rank, told, barrier

    def gather(self, value: Any) -> list[Any]:
        self._told[self.rank] = value
        self._barrier.wait()
        everyones = list(self._told)
        self._barrier.wait()
        return everyones


def watchers(world: int, offset: int = 0) -> list[tuple[RLWatcher, Recorded]]:
    told, barrier = [None] * world, threading.Barrier(world, timeout=20)
    made: list[tuple[RLWatcher, Recorded]] = []
    for rank in range(world):
        driver = Recorded({"stalled": rank, "unreachable": 1})
        exchange: Any = Together(world, rank, told, barrier)
        watcher = RLWatcher(
            Curves(), Run(None, "", ""), Progress("steps", 9), offset, model=torch.nn.Linear(1, 1),
            weights_are=driver.weights_are, driver=Recorded(driver.faults), dev_driver=driver,
            exchange=exchange, dev=DEV, config=rl_config(dev_every=2, steps=9),
        )  # fmt: skip
        made.append((watcher, driver))
    return made


@pytest.mark.parametrize("world", [2, 3, 8])
def test_ranks_share_the_arenas_and_get_the_figures_of_one(world: int) -> None:
    ((alone, _),) = watchers(1)
    expected = alone.evaluate(4)
    assert expected["reward"] == round(sum(REWARDS.values()) / len(DEV), 4)
    ranks = watchers(world)
    with ThreadPoolExecutor(world) as pool:
        figures = list(pool.map(lambda one: one[0].evaluate(4), ranks))
        faults = list(pool.map(lambda one: one[0].faults(), ranks))
    assert figures == [expected] * world
    assert all(watcher.curves.points() == alone.curves.points() for watcher, _ in ranks)
    assert [driver.asked[0] for _, driver in ranks] == [4] * world, "weights first, on every rank"
    played = [arena for _, driver in ranks for arena in driver.asked[1]]
    assert sorted(played) == sorted(REWARDS), "each arena once"
    assert faults == [{"stalled": sum(range(world)), "unreachable": world}] * world


@pytest.mark.parametrize("lost", [1, 5])
def test_means_over_too_few_arenas_are_refused(lost: int) -> None:
    ranks = watchers(2)
    for _, driver in ranks:
        driver.lost = {arena.id for arena in DEV[:lost]}

    def look(watcher: RLWatcher) -> str:
        with pytest.raises(TrainingError) as raised:
            watcher.evaluate(4)
        return str(raised.value)

    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(lambda one: look(one[0]), ranks))
    assert said[0] == said[1], "no rank is left waiting for one that gave up"
    assert f"step 4: {lost} of 5 development rollouts have no score" in said[0]
    assert "the last problem was: no room in time. Mend that" in said[0]


def test_a_few_that_were_lost_are_counted_as_those_of_training_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rl_watch, "MOST_LOST", 0.2)
    ((watcher, driver),) = watchers(1)
    driver.lost = {DEV[0].id}
    told: dict[str, float] = {}
    monkeypatch.setattr(watcher.run, "metrics", lambda values, step: told.update(values))
    assert watcher.evaluate(4)["reward"] == round(sum(REWARDS.values()) / 4, 4), "of the others"
    assert (told["dev/infra_retries"], told["dev/lost_to_infra"]) == (2, 1)
    assert watcher.trouble == Trouble(retries=2, problem="no room in time")
    ((again, _),) = watchers(1)
    again.restore(watcher.state())
    assert again.trouble == watcher.trouble
    again.restore({name: kept for name, kept in watcher.state().items() if name != "trouble"})
    assert again.trouble == Trouble(), "a run goes on that began before they were counted"


def test_the_first_look_is_taken_when_training_begins_and_once() -> None:
    ((watcher, driver),) = watchers(1)
    arguments: Any = None
    state, control = TrainerState(), TrainerControl()
    assert watcher.before is None
    watcher.on_train_begin(arguments, state, control)
    assert watcher.before is not None
    assert driver.asked[0] == 0
    asked = len(driver.asked)
    watcher.on_train_begin(arguments, state, control)  # a later phase, or a resume
    assert len(driver.asked) == asked

    ((resumed, other),) = watchers(1)
    resumed.restore(watcher.state())
    resumed.on_train_begin(arguments, state, control)
    assert other.asked == []
    assert resumed.before == watcher.before
