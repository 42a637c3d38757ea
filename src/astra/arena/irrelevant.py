"""Tools that an episode offers but its question does not need (ASTRA section 5.2).

An arena carries candidates in three bands of similarity to its own tools, which stage
``envs_merged`` chose (``envsynth/bands.py``). Each episode draws some of them.
"""

from __future__ import annotations

import random
from enum import StrEnum

from astra.records.environment import Arena, ArenaTool, Band


class IrrelevantMode(StrEnum):
    """How an episode draws from the candidates of its arena."""

    BANDED = "banded"  # up to ``per_band`` of each similarity band
    RANDOM = "random"  # as many, drawn without regard to bands
    NONE = "none"


def draw(
    arena: Arena, mode: IrrelevantMode, per_band: int, rng: random.Random
) -> tuple[ArenaTool, ...]:
    """The extra tools of one episode, sorted by name; none shares a name with one in scope."""
    taken = {tool.tool.name for tool in arena.tools}
    bands: list[list[ArenaTool]] = []
    for band in Band:
        fresh: list[ArenaTool] = []
        for candidate in arena.irrelevant.get(band, ()):
            if candidate.tool.name not in taken:
                taken.add(candidate.tool.name)
                fresh.append(candidate)
        bands.append(fresh)
    match mode:
        case IrrelevantMode.NONE:
            chosen: list[ArenaTool] = []
        case IrrelevantMode.BANDED:
            chosen = [tool for band in bands for tool in rng.sample(band, min(per_band, len(band)))]
        case IrrelevantMode.RANDOM:
            pooled = [tool for band in bands for tool in band]
            chosen = rng.sample(pooled, min(per_band * len(Band), len(pooled)))
    return tuple(sorted(chosen, key=lambda tool: tool.tool.name))
