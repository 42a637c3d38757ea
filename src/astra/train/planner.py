"""Does a model, length, batch and number of GPUs fit, and how long is a step? Stated formulas.

Estimates, not measurements: the constants are the usual ones for dense transformers trained
with AdamW in mixed precision. With P parameters, d GPUs of a sharding group, s tokens of a
sequence (per GPU: s / context_parallel), h hidden size, L layers, V vocabulary, b sequences per
forward pass and GPU:

    weights      2P bytes                       / d under ZeRO-3 and FSDP2
    gradients    2P bytes (4P in float32)       / d under ZeRO-2, ZeRO-3, FSDP2
    optimizer    12P bytes: master weights and  / d under ZeRO-2, ZeRO-3, FSDP2
                 two moments in float32
    activations  34 s b h L bytes in bfloat16 with attention that stores no scores;
                 2 s b h L + 34 s b h with activation checkpointing
    logits       6 s b V bytes: bfloat16 logits and their float32 softmax
    LoRA         gradients and optimizer of its own parameters alone
    compute      6 P tokens FLOP, 8 P with activation checkpointing
    key-value    4 L h_kv bytes per token and conversation (keys and values, 2 bytes each)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

GIB = 1 << 30
RESERVE = 0.08
"""The share of a GPU that CUDA context, communication buffers and fragmentation take."""


class Sharding(StrEnum):
    DDP = "ddp"
    ZERO2 = "zero2"
    ZERO3 = "zero3"
    FSDP2 = "fsdp2"


@dataclass(frozen=True)
class ModelShape:
    """A dense decoder. ``kv_width`` is key-value heads times head size."""

    parameters: float
    hidden: int
    layers: int
    kv_width: int
    vocabulary: int


SHAPES: Mapping[str, ModelShape] = {
    "tiny": ModelShape(0.98e6, 128, 4, 64, 2560),
    "smollm2-135m": ModelShape(134.5e6, 576, 30, 192, 49152),
    "qwen3-0.6b": ModelShape(0.596e9, 1024, 28, 1024, 151936),
    "qwen3-4b": ModelShape(4.02e9, 2560, 36, 1024, 151936),
    "qwen3-8b": ModelShape(8.19e9, 4096, 36, 1024, 151936),
    "qwen3-14b": ModelShape(14.77e9, 5120, 40, 1024, 151936),
    "qwen3-32b": ModelShape(32.76e9, 5120, 64, 1024, 151936),
}
"""The models' shapes as their published configurations state them."""


@dataclass(frozen=True)
class Setup:
    """What is to be trained, and on what."""

    shape: ModelShape
    tokens: int
    """Longest sequence, prompt included."""
    mean_tokens: int
    """The mean length of a sequence, which throughput depends on."""
    batch: int
    """Sequences per optimizer step, over all GPUs."""
    gpus: int
    gpu_gib: float = 80.0
    gpu_tflops: float = 989.0
    """Peak in bfloat16 without sparsity."""
    utilisation: float = 0.35
    """Share of the peak that training reaches."""
    sharding: Sharding = Sharding.ZERO3
    context_parallel: int = 1
    micro_batch: int = 1
    checkpointing: bool = True
    lora_rank: int = 0


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes per GPU by purpose, and what a step costs."""

    memory: dict[str, float]
    room: float
    step_s: float
    tokens_per_s: float
    accumulation: int

    @property
    def total(self) -> float:
        return sum(self.memory.values())

    @property
    def fits(self) -> bool:
        return self.total <= self.room


def plan(setup: Setup) -> MemoryPlan:
    """Memory of the fullest GPU and time of one optimizer step. ValueError on an uneven setup."""
    replicas, left = divmod(setup.gpus, setup.context_parallel)
    if left or not replicas:
        raise ValueError("gpus must be a multiple of context_parallel")
    accumulation, left = divmod(setup.batch, replicas * setup.micro_batch)
    if left or not accumulation:
        raise ValueError(
            f"a batch of {setup.batch} is no multiple of {replicas} replicas x "
            f"{setup.micro_batch} sequences"
        )
    step_tokens = setup.batch * setup.mean_tokens
    flops = (8 if setup.checkpointing else 6) * setup.shape.parameters * step_tokens
    step_s = flops / (setup.gpus * setup.gpu_tflops * 1e12 * setup.utilisation)
    room = setup.gpu_gib * GIB * (1 - RESERVE)
    return MemoryPlan(_memory(setup), room, step_s, step_tokens / step_s, accumulation)


def _memory(setup: Setup) -> dict[str, float]:
    shape, sharded = setup.shape, setup.sharding
    spread_all = setup.gpus if sharded in (Sharding.ZERO3, Sharding.FSDP2) else 1
    spread_state = setup.gpus if sharded != Sharding.DDP else 1
    trained = lora_parameters(shape, setup.lora_rank) if setup.lora_rank else shape.parameters
    here = setup.tokens / setup.context_parallel * setup.micro_batch
    per_layer = here * shape.hidden
    activations = (
        2 * per_layer * shape.layers + 34 * per_layer
        if setup.checkpointing
        else 34 * per_layer * shape.layers
    )
    return {
        "weights": 2 * shape.parameters / spread_all,
        "gradients": 2 * trained / spread_state,
        "optimizer": 12 * trained / spread_state,
        "activations": activations,
        "logits": 6 * here * shape.vocabulary,
    }


def lora_parameters(shape: ModelShape, rank: int) -> float:
    """Adapters on the seven linear maps of a layer, about 18 hidden widths of in plus out."""
    return rank * shape.layers * 18.0 * shape.hidden


def conversations(shape: ModelShape, tokens: int, gpus: int, gpu_gib: float) -> int:
    """Conversations of ``tokens`` that one rollout server of ``gpus`` holds without evicting."""
    free = gpus * gpu_gib * GIB * (1 - RESERVE) - 2 * shape.parameters
    return max(0, int(free // (4 * shape.layers * shape.kv_width * tokens)))
