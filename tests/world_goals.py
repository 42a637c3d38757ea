"""Worlds and goals as the stages make them, for tests of what uses them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from omegaconf import OmegaConf

from astra.records.environment import Arena
from astra.records.world import World, WorldShape
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.store.tables import write_records
from astra.worlds.domain import load_domains
from astra.worlds.generator import generate
from astra.worlds.goal_config import GoalsConfig
from astra.worlds.goal_plans import world_plans
from astra.worlds.goal_stage import make_goals

ROOT = Path(__file__).resolve().parents[1]


@cache
def worlds_and_goals(
    domain: str = "tool_rental",
    shape: WorldShape = WorldShape.FULL,
    goals: int = 10,
    late_tools: bool = False,
    variant: int = 0,
) -> tuple[World, tuple[Arena, ...]]:
    """One world and arenas with goals in it, those that need a user among them.

    ``late_tools``: a tool of each goal comes while the conversation goes on.
    """
    world = generate(load_domains()[domain], variant, shape, 0)
    stated = OmegaConf.to_container(OmegaConf.load(ROOT / "conf/goals/base.yaml"))
    assert isinstance(stated, dict)
    stated |= {"instances": {world.split: goals}, "sandbox": {"cpu_s": 600}, "draws": 60}
    stated["teacher"] = {"backend": "offline", "model": "rules"}
    if shape == WorldShape.SMALL:
        stated["wishes"] = 1
    if late_tools:
        stated |= {"kinds": {"missing_tool": 1.0}, "traits": {"late_tool": 1.0}}
    config = GoalsConfig.model_validate(stated)
    with LocalSandbox(SandboxLimits(cpu_s=600)) as sandbox:
        (plan,) = world_plans([world], config)
        made = make_goals(plan, sandbox, config).outcomes
    return world, tuple(one for one in made if isinstance(one, Arena))


def write_tables(folder: Path) -> Path:
    """The tables of worlds and of goals in a folder; returns the latter."""
    world, arenas = worlds_and_goals()
    write_records(folder / "worlds.parquet", [world], World)
    write_records(folder / "goals.parquet", sorted(arenas, key=lambda one: one.id), Arena)
    return folder / "goals.parquet"
