"""Engine ``vllm``: servers that weights are handed over to (``runtime.rollout_servers``)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from astra.rollout.driver import Driver, EpisodeSetting
from astra.rollout.engine import EngineConfig, EngineInputs
from astra.rollout.streaming import StreamingDriver, TurnEngine
from astra.rollout.vllm import VLLMConfig, VLLMEngine


class Options(EngineConfig):
    own_weights: ClassVar[bool] = True

    kv_tokens: int | None = Field(ge=1)
    """Tokens of key-value memory of each server; None: what the server says of itself."""
    timeout_s: float | None = Field(gt=0)
    """The wall time of one episode; None: no limit."""


def build(options: Options, inputs: EngineInputs) -> TurnEngine:
    config = VLLMConfig(inputs.servers, kv_tokens=options.kv_tokens, folder=inputs.weights)
    return VLLMEngine(config, inputs.policy.codec.eos_id, inputs.save, inputs.reference)


def drive(engine: TurnEngine, options: Options, setting: EpisodeSetting) -> Driver:
    """Roll each episode at its own pace."""
    return StreamingDriver(engine, *setting, timeout_s=options.timeout_s)
