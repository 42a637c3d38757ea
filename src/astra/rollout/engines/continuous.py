"""Engine ``continuous``: transformers' continuous batching in the training process, on one GPU."""

from __future__ import annotations

from pydantic import Field

from astra.rollout.continuous import ContinuousEngine
from astra.rollout.driver import Driver, EpisodeSetting
from astra.rollout.engine import EngineConfig, EngineInputs
from astra.rollout.streaming import StreamingDriver, TurnEngine


class Options(EngineConfig):
    kv_tokens: int = Field(ge=1)
    """Tokens of key-value memory that the engine allocates."""
    timeout_s: float | None = Field(gt=0)
    """The wall time of one episode; None: no limit."""


def build(options: Options, inputs: EngineInputs) -> TurnEngine:
    codec = inputs.policy.codec
    return ContinuousEngine(inputs.policy.model, codec.eos_id, codec.pad_id, options.kv_tokens)


def drive(engine: TurnEngine, options: Options, setting: EpisodeSetting) -> Driver:
    """Roll each episode at its own pace."""
    return StreamingDriver(engine, *setting, timeout_s=options.timeout_s)
