"""Arenas in a persistent world: they name it by id, and get its tools and rows at load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from astra.arena.delta import WorldBase, world_base
from astra.errors import AstraError
from astra.records.base import compact_json
from astra.records.environment import Arena, ArenaTool
from astra.records.world import World, WorldGoal


class UnknownWorld(AstraError):
    """An arena names a world that is not at hand, or was not given its world."""


def world_texts(worlds: Iterable[World]) -> dict[str, str]:
    """Worlds as ``resolve`` takes them: JSON by id, one text for all arenas of a world."""
    return {world.id: compact_json(world.model_dump(mode="json")) for world in worlds}


def resolve(arena: Arena, texts: Mapping[str, str]) -> Arena:
    """The arena with the tools that it offers at the start and, as ``state``, its world.

    Its id stays; an arena without a world is given back as it is. Raises UnknownWorld.
    """
    if not arena.world_id:
        return arena
    text = texts.get(arena.world_id)
    if text is None:
        raise UnknownWorld(
            f"arena {arena.id}: world {arena.world_id} is not among the {len(texts)} worlds given; "
            "data/worlds.parquet and data/envs_merged.parquet must come from one build: dvc repro"
        )
    withheld = goal_of(arena).withheld
    tools = tuple(
        ArenaTool(tool=one.tool, code=one.code)
        for one in world_base(text).world.tools
        if one.tool.name not in withheld
    )
    return arena.model_copy(update={"tools": tools, "state": text})


def goal_of(arena: Arena) -> WorldGoal:
    """What is wanted in an arena's world; not to be changed."""
    return _parse_goal(arena.goal)


@lru_cache(maxsize=4096)
def _parse_goal(text: str) -> WorldGoal:
    return WorldGoal.model_validate_json(text)


def base_of(arena: Arena) -> WorldBase:
    """The world of a resolved arena. Raises UnknownWorld where it is not resolved."""
    if not arena.state:
        raise UnknownWorld(f"arena {arena.id} has not been given its world: see arena/worlds.py")
    return world_base(arena.state)
