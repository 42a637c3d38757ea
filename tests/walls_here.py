"""The walls that live servers of tests get: a cage, or none on a machine that builds no cage."""

from __future__ import annotations

import warnings
from functools import lru_cache

from astra.sandbox.servers import CageRefused, CageWalls, NoWalls, try_cage


@lru_cache
def refusal() -> str:
    """Why this machine builds no cage; empty where it does."""
    try:
        try_cage()
    except CageRefused as error:
        return str(error)
    return ""


def walls() -> CageWalls | NoWalls:
    if refusal():
        warnings.warn(f"NOT TESTED in a cage: {refusal()}", stacklevel=2)
        return NoWalls()
    return CageWalls()


def live_servers() -> str:
    """What ``runtime.live_servers`` can be here."""
    return "uncaged" if refusal() else "caged"
