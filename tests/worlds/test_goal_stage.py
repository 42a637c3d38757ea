"""Goals of a world from its rows: the same twice, every class of mutant met, quotas kept."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator

import pytest
from goal_samples import CONFIG, library
from pydantic import ValidationError

from astra.arena.worlds import goal_of, resolve, world_texts
from astra.envsynth.envs_merged import with_goals
from astra.envsynth.envs_merged_config import GoalsPassed
from astra.records.environment import Arena
from astra.records.qa import QuestionKind, Split
from astra.records.score import Rejection
from astra.records.world import EventKind, GoalTrait, WorldShape
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.settings import ParamsError
from astra.worlds.domain import load_domains
from astra.worlds.generator import generate
from astra.worlds.goal_config import GoalsConfig
from astra.worlds.goal_plans import WorldPlan, world_plans
from astra.worlds.goal_stage import MadeGoals, make_goals

MUSEUM = generate(load_domains()["museum_ticketing"], 0, WorldShape.FULL, 0)
WORLDS = (library(), MUSEUM)
BOTH = CONFIG.model_copy(update={"instances": {Split.TRAIN: 40, Split.HELDOUT: 40}})


@pytest.fixture(scope="module")
def made(sandbox: LocalSandbox) -> list[MadeGoals]:
    return [make_goals(plan, sandbox, BOTH) for plan in world_plans(WORLDS, BOTH)]


def arenas(made: list[MadeGoals]) -> list[Arena]:
    return [one for goals in made for one in goals.outcomes if isinstance(one, Arena)]


def test_every_class_of_mutant_is_met_and_rejected(made: list[MadeGoals]) -> None:
    rejected, right = Counter[str](), Counter[str]()
    for one in made:
        rejected += one.counts.rejected
        right += one.counts.right
        assert not one.counts.accepted
        assert not one.counts.wrong
    assert {*rejected} == {f"M{at}" for at in range(1, 16)}
    assert {*right} == {f"A{at}" for at in range(1, 6)}
    goals = len(arenas(made))
    assert rejected.total() >= 15 * goals
    assert right["A1"] == goals == rejected["M1"]


def test_what_is_dropped_is_told(made: list[MadeGoals]) -> None:
    for one in made:
        kept = sum(isinstance(outcome, Arena) for outcome in one.outcomes)
        given_up = [o for o in one.outcomes if isinstance(o, Rejection) and o.final]
        assert kept + len(given_up) == 40
        assert kept >= 36
        assert all(o.reason and o.part for o in one.outcomes if isinstance(o, Rejection))


def test_kinds_and_traits_come_in_their_shares(made: list[MadeGoals]) -> None:
    goals = [goal_of(arena) for arena in arenas(made)]
    kinds = Counter(goal.kind for goal in goals)
    for kind, share in CONFIG.kinds.items():
        assert abs(kinds[kind] - share * 80) <= 4, kind
    traits = Counter(trait for goal in goals for trait in goal.traits)
    assert traits[GoalTrait.CROSS_TURN] >= 0.3 * len(goals)
    assert all(traits[trait] for trait in GoalTrait)
    assert all(goal.needs_user for goal in goals if goal.candidates)
    assert 0.3 <= sum(not goal.needs_user for goal in goals) / len(goals) <= 0.8


def test_the_same_goals_twice(made: list[MadeGoals], sandbox: LocalSandbox) -> None:
    plan = next(iter(world_plans(WORLDS, BOTH)))
    again = make_goals(plan, sandbox, BOTH)
    assert again == made[0]
    other = CONFIG.model_copy(update={"seed": 1, "instances": {Split.TRAIN: 4}})
    (first, _) = world_plans(WORLDS, other)
    assert make_goals(first, sandbox, other).outcomes[:4] != made[0].outcomes[:4]


def test_arenas_name_their_world_and_open_as_the_goal_does(made: list[MadeGoals]) -> None:
    texts = world_texts(WORLDS)
    for arena in arenas(made):
        assert (arena.tools, arena.state) == ((), "")
        opened, goal = resolve(arena, texts), goal_of(arena)
        offered = {one.tool.name for one in opened.tools}
        assert not offered & {*goal.withheld}
        assert arena.main_question == goal.trace[0].text
        assert all(event.result is None and not event.changes for event in goal.trace)


def test_a_small_world_has_short_goals(sandbox: LocalSandbox) -> None:
    config = CONFIG.model_copy(update={"wishes": 1, "instances": dict.fromkeys(Split, 24)})
    world = generate(load_domains()["gym_classes"], 1, WorldShape.SMALL, 0)
    (plan,) = world_plans([world], config)
    goals = [goal_of(arena) for arena in arenas([make_goals(plan, sandbox, config)])]
    assert len(goals) >= 18
    for goal in goals:
        assert sum(event.kind == EventKind.USER for event in goal.trace) <= 4
        assert sum(event.tool in ("lesson_reserve",) for event in goal.trace) <= 1


@pytest.mark.parametrize("sort", GoalsPassed)
def test_goals_are_passed_on_with_their_users_or_alone(
    made: list[MadeGoals], sort: GoalsPassed
) -> None:
    async def before() -> AsyncGenerator[Arena | Rejection, None]:
        yield Rejection(item="x", reason="why")

    async def all_of() -> list[Arena | Rejection]:
        return [outcome async for outcome in with_goals(before(), arenas(made), sort)]

    first, *passed = asyncio.run(all_of())
    assert isinstance(first, Rejection)
    goals = [goal_of(one) for one in passed if isinstance(one, Arena)]
    if sort is GoalsPassed.TALKING:
        assert passed == arenas(made)
        assert all(goal.script for goal in goals)
        return
    alone = [one for one in arenas(made) if not goal_of(one).needs_user]
    assert len(goals) == (len(alone) if sort is GoalsPassed.ALONE else 0)
    for arena, goal, whole in zip(passed, goals, alone, strict=False):
        assert isinstance(arena, Arena)
        assert goal == goal_of(whole).model_copy(update={"script": None})
        assert arena.id != whole.id
        assert arena.qa_id == whole.qa_id


def test_a_split_without_worlds_has_no_goals() -> None:
    plans = [*world_plans([MUSEUM], BOTH)]
    assert [len(plan.goals) for plan in plans] == [40]
    assert isinstance(plans[0], WorldPlan)


@pytest.mark.parametrize(
    "change",
    [{"kinds": {QuestionKind.WRITE: 0.5}}, {"kinds": {QuestionKind.CODE: 1.0}},
     {"traits": {GoalTrait.CROSS_TURN: 0.3}}, {"wishes": 5}, {"search_depth": 4}],
)  # fmt: skip
def test_parameters_that_make_no_sense(change: dict[str, object]) -> None:
    with pytest.raises((ValidationError, ParamsError)):
        GoalsConfig.model_validate({**CONFIG.model_dump(), **change})


def test_a_session_that_is_worn_out_is_replaced_without_a_trace(sandbox: LocalSandbox) -> None:
    """Limits of a session are not limits of a world: the goals are the same."""
    plan = WorldPlan(MUSEUM, next(iter(world_plans([MUSEUM], BOTH))).goals[:12])
    whole = make_goals(plan, sandbox, BOTH)
    with LocalSandbox(SandboxLimits(cpu_s=1)) as short:
        assert make_goals(plan, short, BOTH).outcomes == whole.outcomes
