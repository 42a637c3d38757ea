"""The driver that a configuration asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from astra.arena.reward import FinalAnswer, RewardMode
from astra.plugins import find
from astra.rollout import engines
from astra.rollout.batched import BatchedEngine
from astra.rollout.chat import LoadedPolicy
from astra.rollout.continuous import ContinuousEngine
from astra.rollout.driver import Driver, RolloutDriver
from astra.rollout.live import RolloutLimits
from astra.rollout.streaming import StreamingDriver, TurnEngine
from astra.rollout.vllm import VLLMConfig, VLLMEngine
from astra.sandbox.protocol import Sandbox


@dataclass(frozen=True)
class EngineOptions:
    """``rl.engine`` with what belongs to it; servers come from ``runtime``."""

    kind: str = "batched"
    """``batched``, ``continuous``, ``vllm``, or a file of ``known``."""
    rows: int = 128
    kv_tokens: int | None = None
    tool_overlap: bool = False
    timeout_s: float | None = None
    servers: tuple[str, ...] = ()
    weights: Path = field(default_factory=lambda: Path("runs/weights"))
    """Where weights are handed to servers."""


def build_engine(
    policy: LoadedPolicy,
    options: EngineOptions,
    save: Callable[[Path], bool],
    reference: Callable[[], tuple[list[int], list[float]]],
) -> BatchedEngine | TurnEngine:
    """``save(folder)`` writes the policy as it is, ``reference()`` computes some of its
    log-probabilities; both for servers (VLLMEngine). AstraError for an unknown engine."""
    codec = policy.codec
    if options.kind == "batched":
        return BatchedEngine(policy.model, codec.eos_id, codec.pad_id, options.rows)
    if options.kind == "continuous":
        if options.kv_tokens is None:
            raise ValueError("continuous batching needs kv_tokens")
        return ContinuousEngine(policy.model, codec.eos_id, codec.pad_id, options.kv_tokens)
    if options.kind == "vllm":
        config = VLLMConfig(options.servers, kv_tokens=options.kv_tokens, folder=options.weights)
        return VLLMEngine(config, codec.eos_id, save, reference)
    return find(engines, options.kind).build(policy, options, save, reference)


def build_driver(
    engine: BatchedEngine | TurnEngine,
    policy: LoadedPolicy,
    sandbox: Sandbox,
    limits: RolloutLimits,
    reward: RewardMode,
    final_answer: FinalAnswer,
    options: EngineOptions,
) -> Driver:
    """Waves for the batched engine, one coroutine per episode for the others."""
    shared = (policy.codec, sandbox, limits, reward, final_answer)
    if isinstance(engine, BatchedEngine):
        return RolloutDriver(engine, *shared, overlap=options.tool_overlap)
    return StreamingDriver(engine, *shared, timeout_s=options.timeout_s)
