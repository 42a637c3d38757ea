"""Builds the engine that ``rl.engine`` chooses, and the driver that rolls episodes over it.

Each file of ``rollout/engines`` is an engine, a user's own as those that come along. It holds a
class ``Options``, an EngineConfig with what the engine can be told, and two functions:
``build(options, inputs)`` makes the engine, ``drive(engine, options, setting)`` its driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from astra import plugins
from astra.rollout import engines
from astra.rollout.driver import Driver, EpisodeSetting
from astra.rollout.engine import Engine, EngineConfig, EngineInputs
from astra.rollout.streaming import TurnEngine


def engine_options(values: Any) -> Any:
    """``{type: NAME, ...}`` as the ``Options`` of engine NAME, which is not built yet.

    Raises ValueError (PluginError) where there is no such engine, or it refuses an option.
    """
    if isinstance(values, EngineConfig):
        return values
    if not isinstance(values, Mapping) or not isinstance(values.get("type"), str):
        raise ValueError("an engine is a mapping with a type; choose one by -S rl/engine=NAME")
    return plugins.options(engines, values["type"], values)


def build_engine(options: EngineConfig, inputs: EngineInputs) -> Engine | TurnEngine:
    """Make the engine that ``options`` are for. What its ``build`` raises passes through."""
    return plugins.find(engines, options.type).build(options, inputs)


def build_driver(
    engine: Engine | TurnEngine, options: EngineConfig, setting: EpisodeSetting
) -> Driver:
    """Make the driver that the engine says rolls its episodes."""
    return plugins.find(engines, options.type).drive(engine, options, setting)
