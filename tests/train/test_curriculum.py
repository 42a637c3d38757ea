"""Training goes where the policy fails: counts, weights, and the order in which arenas come."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

import pytest
from training_world import make_arena

from astra.arena.env import ArenaEnv
from astra.arena.reward import score_episode
from astra.arena.worlds import base_of, goal_of, resolve, world_texts
from astra.records.base import compact_json
from astra.records.environment import Arena
from astra.records.message import ExecutedCall, ToolCall
from astra.records.world import EventKind
from astra.rollout.live import Rollout
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.train.curriculum import Failures, demands, failures_of, weights
from astra.train.groups import PromptStream
from configs import rl_config
from world_goals import worlds_and_goals

WORLD, MADE = worlds_and_goals()
TEXTS = world_texts([WORLD])
GOALS = [resolve(arena, TEXTS) for arena in MADE]


def counted(rates: dict[str, float], tried: int = 1000) -> Failures:
    """Failures with these rates; ``all`` is their mean."""
    every = {"all": sum(rates.values()) / len(rates), **rates}
    return Failures(
        dict.fromkeys(every, tried), {name: round(rate * tried) for name, rate in every.items()}
    )


def rolled(arena: Arena, plays: bool) -> Rollout:
    """An episode in which the goal's own calls and messages are made, or nothing is."""
    with LocalSandbox(SandboxLimits(cpu_s=60)) as sandbox:
        env = ArenaEnv(arena, sandbox)
        calls: list[ExecutedCall] = []
        for event in goal_of(arena).trace[1:] if plays else ():
            if event.kind == EventKind.USER:
                env.hear(event)
            elif event.kind == EventKind.ASSISTANT:
                env.say(event.text)
            else:
                call = ToolCall(id="c", name=event.tool, arguments=compact_json(event.arguments))
                calls.append(ExecutedCall(turn=0, call=call, result=env.execute_now(call)))
        trace, rows = env.trace, env.tables
        env.close_now()
    rollout = Rollout(arena, [1], 0, [2], [1], [-1.0], end_state=rows, trace=trace)
    rollout.score = score_episode(arena, calls, None, end_state=rows, trace=trace)
    return rollout


def test_an_arena_asks_for_its_traits_parts_rules_and_roles() -> None:
    for arena in GOALS:
        goal = goal_of(arena)
        asked = demands(arena)
        assert {f"trait:{trait}" for trait in goal.traits or ("none",)} <= asked
        assert ("component:state" in asked) == bool(goal.effect)
        assert ("component:said" in asked) == bool(goal.say)
        assert not goal.violates or f"rule:{goal.violates}" in asked
        assert "role:find" in asked
    assert demands(make_arena(1)) == {f"kind:{make_arena(1).kind}"}


def test_failures_are_those_of_the_verdict_and_success_has_none() -> None:
    arena = next(one for one in GOALS if goal_of(one).effect and not goal_of(one).say)
    failures = failures_of([rolled(arena, plays=True), rolled(arena, plays=False)])
    asked = demands(arena)
    assert failures.tried == dict.fromkeys({"all", *asked}, 2)
    assert failures.failed["all"] == failures.failed["component:state"] == 1
    rules = {f"rule:{rule.id}" for rule in base_of(arena).world.rules}
    assert not rules & set(failures.failed), "nothing was called, so no rule was broken"
    assert set(failures.failed) <= {"all", *asked}


def test_what_our_machinery_lost_counts_nowhere() -> None:
    lost = Rollout(GOALS[0], [1], 0, problem="no room")
    assert failures_of([lost]) == Failures()
    bare = rolled(GOALS[0], plays=False)
    bare.trace = None
    with pytest.raises(ValueError, match="no trace to judge"):
        failures_of([bare])


def test_counts_add_up_and_survive_json() -> None:
    one, other = counted({"trait:choice": 0.5}), counted({"trait:multi": 1.0}, tried=10)
    both = one + other
    assert both.tried == {"all": 1010, "trait:choice": 1000, "trait:multi": 10}
    assert Failures(**asdict(both)) == both
    assert one + Failures() == one


def test_weights_follow_planted_failures() -> None:
    every = frozenset[str]().union(*map(demands, GOALS))
    shared = {name: sum(name in demands(arena) for arena in GOALS) for name in every}
    planted = next(
        name
        for name, number in sorted(shared.items())
        if name.startswith("trait:") and number < len(GOALS)
    )
    rates = dict.fromkeys(every, 0.02) | {planted: 1.0}
    found = weights(GOALS, counted(rates))
    assert {found[a.id] for a in GOALS if planted in demands(a)} == {4}
    assert {found[a.id] for a in GOALS if planted not in demands(a)} == {1}


@pytest.mark.parametrize(
    ("rate", "weight"), [(0.0, 1), (0.1, 1), (0.3, 2), (0.6, 3), (0.9, 4), (1.0, 4)]
)
def test_a_weight_is_one_and_three_times_the_rate(rate: float, weight: int) -> None:
    arena = make_arena(1)
    assert weights([arena], counted({f"kind:{arena.kind}": rate})) == {arena.id: weight}


def test_a_few_failures_weigh_little_and_nothing_counted_weighs_nothing() -> None:
    arena = make_arena(1)
    kind = f"kind:{arena.kind}"
    few = Failures({"all": 1000, kind: 1}, {"all": 10, kind: 1})
    assert weights([arena], few) == {arena.id: 1}
    assert weights([arena], Failures()) == {arena.id: 1}
    unseen = Failures({"all": 1000}, {"all": 1000})
    assert weights([arena], unseen) == {arena.id: 4}


ARENAS = [make_arena(number) for number in range(9)]


def taken(stream: PromptStream, *counts: int) -> list[tuple[int, str]]:
    return [(uid, arena.id) for count in counts for uid, arena in stream.take(count)]


def test_an_epoch_holds_each_arena_as_often_as_it_weighs() -> None:
    often = {arena.id: 1 + at % 4 for at, arena in enumerate(ARENAS)}
    length = sum(often.values())
    drawn = taken(PromptStream(ARENAS, 3, often), 3 * length)
    for epoch in range(3):
        part = drawn[epoch * length : (epoch + 1) * length]
        assert Counter(id for _, id in part) == often
    assert [id for _, id in drawn[:length]] != [id for _, id in drawn[length : 2 * length]]


def test_weights_of_one_change_nothing() -> None:
    plain = taken(PromptStream(ARENAS, 3), 40)
    assert taken(PromptStream(ARENAS, 3, {arena.id: 1 for arena in ARENAS}), 40) == plain


def test_a_stream_goes_on_anywhere_in_the_same_order() -> None:
    often = {arena.id: 1 + at % 4 for at, arena in enumerate(ARENAS)}
    whole = taken(PromptStream(ARENAS, 3, often), 50)
    for at in (1, 7, 23, 49):
        resumed = PromptStream(ARENAS, 3, often)
        resumed.position = at
        assert taken(resumed, 50 - at) == whole[at:]


@pytest.mark.parametrize(
    ("schedule", "named"),
    [
        ([{"steps": 3, "refresh": True}], "the first phase has none"),
        ([{"steps": 3, "band": {"rollouts": 4, "most": 5}}], "most 5 <= rollouts 4"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(schedule: list[dict[str, Any]], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        rl_config(schedule=schedule)
    assert not rl_config(schedule=[{"steps": 3}]).refreshes
    assert rl_config(schedule=[{"steps": 3}, {"steps": 3, "refresh": True}]).refreshes
