"""Engine ``vllm``: servers that weights are handed over to (``runtime.rollout_servers``)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from astra.rollout.driver import Driver, EpisodeSetting
from astra.rollout.engine import EngineConfig, EngineInputs
from astra.rollout.streaming import StreamingDriver, TurnEngine
from astra.rollout.transfer import FolderTransfer, NCCLTransfer, nccl_join
from astra.rollout.vllm import VLLMConfig, VLLMEngine


class Options(EngineConfig):
    own_weights: ClassVar[bool] = True

    transfer: Literal["folder", "nccl"]
    """How weights get there: through a folder that every server sees, or over NCCL, which needs
    vLLM installed beside the trainer."""
    kv_tokens: int | None = Field(ge=1)
    """Tokens of key-value memory of each server; None: what the server says of itself."""
    timeout_s: float | None = Field(gt=0)
    """The wall time of one episode; None: no limit."""


def build(options: Options, inputs: EngineInputs) -> TurnEngine:
    config = VLLMConfig(inputs.servers, kv_tokens=options.kv_tokens, ranks=inputs.ranks)
    if options.transfer == "nccl":
        transfer = NCCLTransfer(inputs.served, nccl_join())
    else:
        transfer = FolderTransfer(inputs.weights, inputs.save)
    eos_id = inputs.policy.codec.eos_id
    return VLLMEngine(config, eos_id, transfer, inputs.reference, inputs.gather)


def drive(engine: TurnEngine, options: Options, setting: EpisodeSetting) -> Driver:
    """Roll each episode at its own pace."""
    return StreamingDriver(engine, *setting, timeout_s=options.timeout_s)
