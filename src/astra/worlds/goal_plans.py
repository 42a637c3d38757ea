"""Which goals a stage is to make: a world, a kind and traits for each, by quota."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from astra.records.base import content_id
from astra.records.qa import QuestionKind, Split
from astra.records.world import GoalTrait, World
from astra.worlds.goal_config import GoalsConfig
from astra.worlds.goals import GoalPlan
from astra.worlds.view import WorldView

T = GoalTrait
_ACTING = frozenset({QuestionKind.WRITE, QuestionKind.MIXED})
_APPLIES: Mapping[GoalTrait, frozenset[QuestionKind]] = {
    T.IMPLICIT: frozenset(QuestionKind),
    T.CHOICE: _ACTING,
    T.CHANGES_MIND: _ACTING,
    T.MULTI: _ACTING | {QuestionKind.READ_ONLY},
    T.LATE_TOOL: frozenset({QuestionKind.MISSING_TOOL}),
}
"""Which kinds may have a trait; a goal has at most one of choice and change of mind."""


@dataclass(frozen=True)
class WorldPlan:
    """A world with the goals that are wanted of it, numbered within their split."""

    world: World
    goals: tuple[tuple[int, GoalPlan], ...]


def world_plans(worlds: Sequence[World], config: GoalsConfig) -> Iterator[WorldPlan]:
    """The plans of all worlds, in the worlds' order; a split's goals go round its worlds."""
    given: dict[str, list[tuple[int, GoalPlan]]] = {world.id: [] for world in worlds}
    for split in Split:
        there = [world for world in worlds if world.split is split]
        wanted = config.instances.get(split, 0) if there else 0
        for number, plan in enumerate(_plans(split, wanted, config)):
            world = there[number % len(there)]
            given[world.id].append((number, _fitting(world, plan)))
    for world in worlds:
        yield WorldPlan(world, tuple(given[world.id]))


def _fitting(world: World, plan: GoalPlan) -> GoalPlan:
    """The plan without traits that the world leaves no room for: where no rule makes the agent ask
    before a change, nobody can change their mind in time."""
    view = WorldView(world)
    if any(view.asks_consent(tool.tool.name) for tool in view.writing):
        return plan
    return plan._replace(traits=plan.traits - {T.CHANGES_MIND})


def _plans(split: Split, wanted: int, config: GoalsConfig) -> list[GoalPlan]:
    """So many plans of the kinds' shares, shuffled."""
    rng = random.Random(int(content_id(["goals", split, config.seed]), 16))
    kinds = [kind for kind in QuestionKind if config.kinds.get(kind, 0) > 0]
    exact = {kind: config.kinds[kind] * wanted for kind in kinds}
    counts = {kind: int(exact[kind]) for kind in kinds}
    for kind in sorted(kinds, key=lambda kind: counts[kind] - exact[kind]):
        counts[kind] += sum(counts.values()) < wanted
    planned = [_plan(kind, config, rng) for kind in kinds for _ in range(counts[kind])]
    rng.shuffle(planned)
    return planned


def _plan(kind: QuestionKind, config: GoalsConfig, rng: random.Random) -> GoalPlan:
    traits = {
        trait
        for trait in T
        if rng.random() < config.traits.get(trait, 0) and kind in _APPLIES.get(trait, ())
    }
    if T.CHOICE in traits:
        traits -= {T.CHANGES_MIND}
    if config.wishes == 1:
        traits -= {T.MULTI}
    several = rng.choice(range(2, config.wishes + 1)) if config.wishes > 1 else 1
    agreed = rng.random() < config.agreed
    successive = T.MULTI in traits and rng.random() < config.successive
    wishes = several if T.MULTI in traits else 1
    return GoalPlan(kind, frozenset(traits), agreed, wishes, successive)
