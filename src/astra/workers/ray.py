"""Ray, imported only where workers are asked for."""

from __future__ import annotations

import importlib
from typing import Any

from astra.workers.inputs import WorkersError


def import_ray() -> Any:
    """The library. Raises WorkersError with the way to get it."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise WorkersError(
            "runtime.stage_workers needs ray: pip install '.[ray]', or set it to 0 "
            f"(conf/runtime, then `make params`) ({error})"
        ) from error


def at_node(node: str, soft: bool) -> Any:
    """The strategy that places an actor on a node; ``soft``: elsewhere if it is gone."""
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    return strategies.NodeAffinitySchedulingStrategy(node, soft=soft)
