"""The act that a linear model finds likeliest, by whole numbers.

``act_weights.json`` holds for each feature a string with a character for each act: how much the
feature speaks for it. It is made by ``benchmarks/act_weights.py``. Sums of whole numbers are the
same everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources

from astra.records.world import AgentAct

ACTS = tuple(AgentAct)
ALWAYS = "always"
"""The feature that every message has."""
ZERO, MOST = 79, 44
"""The character of weight 0, and the largest weight: printable ASCII, without the marks that JSON
escapes."""


def packed(weights: Iterable[int]) -> str:
    """The weights of a feature as a string. A weight beyond MOST is cut."""
    found = (chr(ZERO + max(-MOST, min(MOST, one))) for one in weights)
    return "".join(" " if one == "\\" else one for one in found)


def unpacked(text: str) -> tuple[int, ...]:
    return tuple(ord("\\" if one == " " else one) - ZERO for one in text)


@cache
def stored() -> Mapping[str, tuple[int, ...]]:
    """The weights of each feature, in the order of ACTS."""
    text = resources.files("astra").joinpath("arena", "act_weights.json").read_text("utf-8")
    return {name: unpacked(one) for name, one in json.loads(text).items()}


def likeliest(
    features: Iterable[str], weights: Mapping[str, tuple[int, ...]] | None = None
) -> AgentAct:  # fmt: skip
    """The act that features speak for most; of acts alike the first."""
    known = stored() if weights is None else weights
    held = [known[one] for one in (ALWAYS, *features) if one in known]
    sums = [sum(each) for each in zip(*held, strict=True)] or [0]
    return ACTS[sums.index(max(sums))]
