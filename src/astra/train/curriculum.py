"""Where training goes: what rollouts failed at is counted, and arenas that ask for it come oftener.

An arena in a world asks for its traits, the parts of its verdict, the unenforced rules that govern
its calls, and the roles of its tools; any other asks for its kind and its traits. A rollout that
failed did so at its arena's traits and roles, and at the parts and rules that its verdict names.
Each is counted by itself: of their combinations most would never be met. Everything here is a pure
function, so that a run that is repeated or resumed draws the same arenas.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from astra.arena.verdict import GoalVerdict, judge
from astra.arena.worlds import base_of, goal_of
from astra.records.environment import Arena
from astra.records.world import Enforced, OutcomeKind, World, WorldGoal
from astra.rollout.live import Rollout

MOST = 4
"""The greatest weight: that of arenas with something that always fails (reference: 1 to 4)."""
PRIOR = 8
"""So many rollouts at the mean rate of failure are added to what was counted of each demand, so
that a few bad rollouts weigh little (ours)."""
_ALL = "all"


@dataclass
class Failures:
    """How many rollouts asked for something, and how many of them failed at it, by its name."""

    tried: dict[str, int] = field(default_factory=dict[str, int])
    failed: dict[str, int] = field(default_factory=dict[str, int])

    def __add__(self, other: Failures) -> Failures:
        return Failures(_sum(self.tried, other.tried), _sum(self.failed, other.failed))

    def rate(self, demand: str) -> float:
        """The share that failed at it, drawn to the mean of all where little was counted; 0 before
        anything was."""
        tried = self.tried.get(_ALL, 0)
        if not tried:
            return 0.0
        mean = self.failed.get(_ALL, 0) / tried
        return (self.failed.get(demand, 0) + PRIOR * mean) / (self.tried.get(demand, 0) + PRIOR)


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    names = sorted({*one, *other})
    return {name: one.get(name, 0) + other.get(name, 0) for name in names}


def demands(arena: Arena) -> frozenset[str]:
    """What an episode in the arena can fail at. A world's arena must have been resolved."""
    if not arena.world_id:
        return frozenset({f"kind:{arena.kind}", *(f"trait:{trait}" for trait in arena.traits)})
    world, goal = base_of(arena).world, goal_of(arena)
    called = {event.tool for event in (*goal.trace, *goal.wish) if event.tool}
    rules = {rule.id for rule in world.rules
             if rule.enforced == Enforced.POLICY and called & {*rule.tools}}  # fmt: skip
    parts = {
        "state": bool(goal.effect), "outcome": goal.outcome.kind != OutcomeKind.DONE,
        "said": bool(goal.say), "read": bool(goal.must_read),
    }  # fmt: skip
    return _manner(world, goal) | {
        *(f"component:{name}" for name, asked in parts.items() if asked),
        *(f"rule:{id}" for id in rules),
    }


def _manner(world: World, goal: WorldGoal) -> frozenset[str]:
    """How a goal asks for something, and by which sorts of tools it is done."""
    called = {event.tool for event in goal.trace if event.tool}
    roles = {tool.role for tool in world.tools if tool.tool.name in called}
    traits = goal.traits or ("none",)
    return frozenset({*(f"trait:{one}" for one in traits), *(f"role:{role}" for role in roles)})


def failures_of(rollouts: Iterable[Rollout]) -> Failures:
    """What scored rollouts asked for and failed at; those that our machinery lost say nothing."""
    counted = Failures()
    for rollout in rollouts:
        if rollout.score is None:
            continue
        asked = {_ALL, *demands(rollout.arena)}
        missed = set[str]() if rollout.score.success else {_ALL, *_missed(rollout)}
        counted += Failures(dict.fromkeys(asked, 1), dict.fromkeys(missed & asked, 1))
    return counted


def _missed(rollout: Rollout) -> frozenset[str]:
    """What a rollout that did not succeed failed at."""
    arena = rollout.arena
    if not arena.world_id:
        return demands(arena)
    world, goal = base_of(arena).world, goal_of(arena)
    if rollout.trace is None or rollout.end_state is None:
        raise ValueError(f"arena {arena.id} is in a world: its rollout has no trace to judge")
    verdict = judge(world, goal, rollout.trace, rollout.end_state)
    return _manner(world, goal) | frozenset(_parts(verdict))


def _parts(verdict: GoalVerdict) -> Iterable[str]:
    for name in ("state", "outcome", "said", "read"):
        if not getattr(verdict, name):
            yield f"component:{name}"
    yield from (f"rule:{id}" for id in verdict.rules_broken)


def weights(arenas: Sequence[Arena], failures: Failures) -> dict[str, int]:
    """How often an epoch holds each arena, by id: from 1 where nothing that it asks for ever fails
    to ``MOST`` where something always does. All 1 before anything was counted."""
    return {
        arena.id: 1 + round((MOST - 1) * max(map(failures.rate, demands(arena))))
        for arena in arenas
    }
