"""Goals in copies of their worlds under other names: what was right stays right, nothing else."""

from __future__ import annotations

import re

import pytest

from astra.arena.verdict import judge
from astra.arena.worlds import goal_of
from astra.records.environment import Arena
from astra.records.state import WriteAction
from astra.records.world import OUTCOMES, World, WorldShape
from astra.sandbox.local import LocalSandbox
from astra.worlds.executions import Executions
from astra.worlds.goal_copies import goal_copy
from astra.worlds.goal_stage import unsolved
from world_goals import worlds_and_goals

Copies = list[tuple[Arena, Arena, World]]


@pytest.fixture(scope="module", params=["veterinary_clinic", "museum_ticketing"])
def original(request: pytest.FixtureRequest) -> tuple[World, tuple[Arena, ...]]:
    return worlds_and_goals(request.param, WorldShape.SMALL, 24, variant=1)


@pytest.fixture(scope="module")
def copies(original: tuple[World, tuple[Arena, ...]], sandbox: LocalSandbox) -> Copies:
    """Each goal with its copy and the copy's world, where there is one."""
    world, arenas = original
    made = [(arena, goal_copy(arena, world, 1, sandbox)) for arena in arenas]
    assert sum(one is None for _, one in made) <= len(made) // 8
    return [(arena, *one) for arena, one in made if one is not None]


def test_the_trace_reaches_the_copy_and_doing_nothing_does_not(
    copies: Copies, sandbox: LocalSandbox
) -> None:
    for _, arena, world in copies:
        goal = goal_of(arena)
        with Executions(world, sandbox) as executions:
            assert unsolved(world, goal, executions) == ""
            idle = executions.run(goal.trace[:1], goal.withheld)
        assert not judge(world, goal, idle.trace, idle.tables).success


def test_a_copy_is_the_same_goal_in_no_name_of_the_old_world(
    copies: Copies, original: tuple[World, tuple[Arena, ...]]
) -> None:
    old, _ = original
    for before, arena, world in copies:
        assert arena.world_id == world.id != before.world_id
        assert (arena.kind, arena.split) == (before.kind, before.split)
        assert [e.kind for e in goal_of(arena).trace] == [e.kind for e in goal_of(before).trace]
        told = f"{arena.goal} {world.model_dump_json()}".lower().replace("_", " ")
        for table in old.tables:
            if table.name != OUTCOMES:
                word = table.key.removesuffix("_id").replace("_", " ")
                assert not re.search(rf"(?<![a-z]){word}s?(?![a-z])", told), word


def test_rows_that_calls_make_have_the_keys_of_the_copy(
    copies: Copies, sandbox: LocalSandbox
) -> None:
    checked = 0
    for _, arena, world in copies:
        goal = goal_of(arena)
        keys = {table.name: table.key for table in world.tables}
        with Executions(world, sandbox) as executions:
            tables = executions.run(goal.trace, goal.withheld).tables
        for write in goal.effect:
            if write.action is WriteAction.INSERT:
                key = keys[write.table]
                assert write.values[key] in {row[key] for row in tables[write.table]}
                checked += 1
    assert checked


def test_each_copy_has_names_of_its_own_and_is_drawn_alike(
    original: tuple[World, tuple[Arena, ...]], sandbox: LocalSandbox
) -> None:
    world, (arena, *_) = original
    first = goal_copy(arena, world, 1, sandbox)
    assert first == goal_copy(arena, world, 1, sandbox)
    second = goal_copy(arena, world, 2, sandbox)
    assert first is not None
    assert second is not None
    assert not {t.name for t in first[1].tables} & {t.name for t in second[1].tables} - {OUTCOMES}


def test_a_copy_that_its_trace_does_not_reach_is_none(sandbox: LocalSandbox) -> None:
    """A column that is called as a function of the tools' code takes the function away."""
    world, arenas = worlds_and_goals("veterinary_clinic", WorldShape.SMALL, 24, variant=1)
    column = next(one.name for one in world.tables[1].columns if one.type == "integer")
    clash = re.compile(rf"(?<![A-Za-z_]){column}(?![A-Za-z_])")
    fields = World.model_validate_json(clash.sub("sorted", world.model_dump_json(exclude={"id"})))
    arena = arenas[0].model_copy(
        update={"goal": clash.sub("sorted", arenas[0].goal), "world_id": fields.id}
    )
    with Executions(fields, sandbox) as executions:
        assert unsolved(fields, goal_of(arena), executions) == ""
    assert goal_copy(arena, fields, 1, sandbox) is None
