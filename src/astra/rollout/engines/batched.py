"""Engine ``batched``: one decoding loop in the training process, for small policies."""

from __future__ import annotations

from pydantic import Field

from astra.rollout.driver import Driver, EpisodeSetting, RolloutDriver
from astra.rollout.engine import Engine, EngineConfig, EngineInputs


class Options(EngineConfig):
    rows: int = Field(ge=1)
    """Conversations generated side by side."""
    tool_overlap: bool
    """Whether tools run while other rows generate. Rollouts then depend on the clock, as they do
    with the other engines, which always overlap."""


def build(options: Options, inputs: EngineInputs) -> Engine:
    from astra.rollout.batched import BatchedEngine

    codec = inputs.policy.codec
    return BatchedEngine(inputs.policy.model, codec.eos_id, codec.pad_id, options.rows)


def drive(engine: Engine, options: Options, setting: EpisodeSetting) -> Driver:
    """Roll episodes in waves of ``rows``."""
    return RolloutDriver(engine, *setting, overlap=options.tool_overlap)
