"""Tools that an episode offers but its question does not need (ASTRA section 5.2).

An arena carries candidates in three bands of similarity to its own tools, which stage
``envs_merged`` chose (``envsynth/bands.py``). Each episode draws some of them.

They run like any tool. Those that come without code, as documents alone, answer as a look-up does
that holds no record of what it is asked for (``without_record``): no fact is made up, and a tool
of another arena says the same of the names in this question, so nothing gives them away.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from astra.records.environment import Arena, ArenaTool, Band
from astra.records.message import CallStatus, ToolResult
from astra.records.tool import Tool


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


def without_record(tool: Tool, arguments: Mapping[str, Any]) -> ToolResult:
    """What a tool that is a document alone returns; it depends on the arguments alone.

    The first text among the arguments, required ones first, is what it does not know; without
    arguments there is nothing to list.
    """
    if not arguments:
        return ToolResult(status=CallStatus.OK, content="[]", value=[])
    properties = tool.parameters.get("properties", {})
    required = [name for name in tool.parameters.get("required", ()) if name in arguments]
    names = list(dict.fromkeys((*required, *arguments)))
    texts = (
        name
        for name in names
        if isinstance(arguments[name], str) and "enum" not in properties.get(name, {})
    )
    name = next(texts, None)
    if name is None:
        unknown = f"nothing found for {arguments[names[0]]}"
    else:
        unknown = f"no {name.replace('_', ' ')} named {arguments[name]}"
    return ToolResult(status=CallStatus.ERROR, content=f"error: {unknown}")
