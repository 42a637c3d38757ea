"""A small world to plant faults in, and how worlds are changed."""

from __future__ import annotations

from functools import cache
from typing import Any

from astra.records.world import Enforced, World, WorldShape
from astra.worlds.config import ProofConfig
from astra.worlds.domain import load_domains
from astra.worlds.generator import generate

FEW = ProofConfig(fuzz_calls=80, walk_calls=50)


@cache
def small_world() -> World:
    """A small world of a library with tools that cancel and extend, one rule enforced by a tool."""
    return next(
        world
        for seed in range(200)
        if (world := generate(load_domains()["library_loans"], 0, WorldShape.SMALL, seed))
        and [rule.enforced for rule in world.rules] == [Enforced.POLICY, Enforced.TOOL]
        and world.rules[1].id == "extend_length"
    )


def changed(world: World, **fields: Any) -> World:
    """A world with other fields, and the id that fits them."""
    given: dict[str, Any] = {**dict(world), "id": "", **fields}
    return World(**given)
