"""Does a model, length, batch and number of GPUs fit, and how long is a step? Stated formulas.

For dense decoders that compute in bfloat16 and train with AdamW. P parameters, of them M in linear
maps, d GPUs, L layers of width h, query and key-value widths q and kv, feed-forward width i,
vocabulary V; n = b s tokens of a forward pass on one GPU (b sequences of s tokens, s divided by
context_parallel). Bytes of the fullest GPU, where "held" is what autograd keeps for backward:

                one GPU, DDP    ZeRO-2        ZeRO-3        FSDP2
    weights     4P              2P            2P/d          4P/d
    gradients   4P              2P/d          2P/d          4P/d
    optimizer   8P              12P/d         12P/d         8P/d
    buffers     4P if d > 1     3 buckets     10^9 weights  3 layers, embeddings
    copies      2M              0             0             0
    layer, held n (26h + 10q + 10kv + 8i)     n (16h + 10q + 10kv + 8i) in the other three

Weights, gradients and moments are float32 on one GPU and under DDP and FSDP2; DeepSpeed keeps
float32 masters beside bfloat16 weights (ZeRO's K = 12, arXiv 1910.02054 section 3.1). DDP has
buckets besides its gradients; ZeRO-2's buckets are conf/deepspeed/zero2.json's, two for
reduction and one to gather; ZeRO-3 gathers at most DeepSpeed's stage3_max_live_parameters; FSDP2
gathers a layer and the next, reduces one, and keeps embeddings and head gathered. Copies are the
bfloat16 weights that autocast makes of float32 ones. A layer's terms are those of transformers'
Qwen3, measured (tests/train/test_planner_memory.py); without norms on queries and keys, 10 is 4.

With activation checkpointing, 4 n h bytes a layer are held (2 n h in bfloat16 throughout), and one
layer is computed again. Ends of the model and gradients in flight: 30 n h, with checkpointing
20 n h. Logits: TRL's head goes over tiles of 4,096 tokens x 32,768 entries, and adds a float32
gradient of V h; ours, for SFT on one GPU, holds 16 bytes per trained token and entry where that is
at most OWN_HEAD_BYTES. More than one sequence in a forward pass of TRL's has a mask of b s^2
bytes. Forward, the head's backward and the layers' follow each other, and the largest counts.

Adapters (LoRA): 2P of weights in bfloat16, and weights, gradients and moments of their own.
Compute: 6 P tokens FLOP, 8 P with activation checkpointing. Keys and values of a rollout: 4 L kv
bytes per token and conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from astra.train.launch import Sharding
from astra.train.sft_config import LOGIT_BYTES, OWN_HEAD_BYTES

GIB = 1 << 30
RESERVE = 0.08
"""The share of a GPU that CUDA context, communication buffers and fragmentation take (ours)."""
TILE_TOKENS, TILE_WIDTH = 4096, 32768
"""A tile of TRL's head (trl/kernels/chunked_logprob.py, trl/trainer/utils.py)."""
TILE_BYTES: Mapping[str, int] = {"cuda": 0, "cpu": 30}
"""What each of its entries takes beside the bfloat16 logit. Triton's kernel works in place; plain
torch makes float32 tensors of its size, measured in the same test."""
ZERO2_BUCKETS = 3 * 500_000_000 * 2
ZERO3_LIVE = 1_000_000_000


@dataclass(frozen=True)
class ModelShape:
    """A dense decoder. ``query_width`` and ``kv_width`` are heads times head size."""

    hidden: int
    layers: int
    query_width: int
    kv_width: int
    feed_forward: int
    vocabulary: int
    tied: bool
    """Whether embeddings and output head are one matrix."""
    normed_heads: bool = True
    """Whether queries and keys are normalised (Qwen3)."""

    @property
    def layer_weights(self) -> int:
        """Weights of the linear maps of a layer."""
        return self.hidden * (2 * self.query_width + 2 * self.kv_width + 3 * self.feed_forward)

    @property
    def embedding_weights(self) -> int:
        """Weights of embeddings and output head."""
        return (1 if self.tied else 2) * self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All but the norms' few."""
        return self.layers * self.layer_weights + self.embedding_weights


SHAPES: Mapping[str, ModelShape] = {
    "tiny": ModelShape(128, 4, 128, 64, 384, 3686, True),
    "smollm2-135m": ModelShape(576, 30, 576, 192, 1536, 49152, True, False),
    "qwen2.5-0.5b": ModelShape(896, 24, 896, 128, 4864, 151936, True, False),
    "llama3.2-1b": ModelShape(2048, 16, 2048, 512, 8192, 128256, True, False),
    "qwen3-0.6b": ModelShape(1024, 28, 2048, 1024, 3072, 151936, True),
    "qwen3-1.7b": ModelShape(2048, 28, 2048, 1024, 6144, 151936, True),
    "qwen3-4b": ModelShape(2560, 36, 4096, 1024, 9728, 151936, True),
    "qwen3-8b": ModelShape(4096, 36, 4096, 1024, 12288, 151936, False),
    "qwen3-14b": ModelShape(5120, 40, 5120, 1024, 17408, 151936, False),
    "qwen3-32b": ModelShape(5120, 64, 8192, 1024, 25600, 151936, False),
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
    stage: Literal["sft", "rl"] = "sft"
    trained_share: float = 0.4
    """The share of a sequence's tokens that the assistant wrote, in tool-use conversations."""
    device: Literal["cuda", "cpu"] = "cuda"


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
    memory = {**_state(setup), "activations": _held(setup), "working": _working(setup)}
    return MemoryPlan(memory, room, step_s, step_tokens / step_s, accumulation)


def _state(setup: Setup) -> dict[str, float]:
    """What is there at any time of a step but its first pass."""
    shape, sharding, d = setup.shape, setup.sharding, setup.gpus
    every = shape.parameters
    if setup.lora_rank:
        few = lora_parameters(shape, setup.lora_rank)
        return {"weights": 2 * every + 4 * few, "gradients": 4 * few, "optimizer": 8 * few}
    match sharding:
        case Sharding.DDP:
            buffers = 4 * every if d > 1 else 0
            sizes = (4 * every, 4 * every, 8 * every, buffers)
        case Sharding.ZERO2:
            sizes = (2 * every, 2 * every / d, 12 * every / d, ZERO2_BUCKETS)
        case Sharding.ZERO3:
            sizes = (2 * every / d, 2 * every / d, 12 * every / d, 2 * min(every, ZERO3_LIVE))
        case Sharding.FSDP2:
            gathered = 2 * (3 * shape.layer_weights + shape.embedding_weights)
            sizes = (4 * every / d, 4 * every / d, 8 * every / d, gathered)
    return dict(zip(("weights", "gradients", "optimizer", "buffers"), sizes, strict=True))


def _autocast(setup: Setup) -> bool:
    """Whether float32 weights meet bfloat16 compute, and the residual stream is float32."""
    return setup.sharding == Sharding.DDP and not setup.lora_rank


def _tokens(setup: Setup) -> float:
    """Tokens of a forward pass on one GPU."""
    return setup.tokens / setup.context_parallel * setup.micro_batch


def _layer(setup: Setup) -> float:
    """What autograd keeps of one layer."""
    shape = setup.shape
    heads = (10 if shape.normed_heads else 4) * (shape.query_width + shape.kv_width)
    stream = (26 if _autocast(setup) else 16) * shape.hidden
    return _tokens(setup) * (stream + heads + 8 * shape.feed_forward)


def _held(setup: Setup) -> float:
    """What is kept of all layers from forward to backward."""
    stream = (4 if _autocast(setup) else 2) * _tokens(setup) * setup.shape.hidden
    return setup.shape.layers * (stream if setup.checkpointing else _layer(setup))


def _working(setup: Setup) -> float:
    """The largest of what comes and goes: at the end of forward, in the head, in a layer."""
    shape = setup.shape
    ends = (20 if setup.checkpointing else 30) * _tokens(setup) * shape.hidden
    per_weight = 2 if _autocast(setup) else 0
    copies = per_weight * shape.layers * shape.layer_weights
    kept = 0 if setup.checkpointing else copies  # else cast again, layer by layer
    again = _layer(setup) + per_weight * shape.layer_weights if setup.checkpointing else 0
    return ends + _mask(setup) + max(copies, kept + _head(setup), kept + again)


def own_head(setup: Setup) -> bool:
    """Whether SFT holds all logits at once (sft_trainer.own_head_fits)."""
    alone = setup.gpus == 1 and setup.sharding == Sharding.DDP and not setup.lora_rank
    return setup.stage == "sft" and alone and _logits(setup) <= OWN_HEAD_BYTES


def _logits(setup: Setup) -> float:
    return LOGIT_BYTES * _tokens(setup) * setup.trained_share * setup.shape.vocabulary


def _head(setup: Setup) -> float:
    if own_head(setup):
        return _logits(setup)
    shape, count = setup.shape, min(_tokens(setup), TILE_TOKENS)
    width = min(shape.vocabulary, TILE_WIDTH)
    tile = 2 * count * TILE_WIDTH + TILE_BYTES[setup.device] * count * width
    gradient = 0 if setup.lora_rank else 4 * shape.vocabulary * shape.hidden
    return tile + gradient


def _mask(setup: Setup) -> float:
    """The mask of attention over rows of unlike length; a row alone needs none."""
    if setup.micro_batch == 1 or own_head(setup):
        return 0
    return setup.micro_batch * (setup.tokens / setup.context_parallel) ** 2


def lora_parameters(shape: ModelShape, rank: int) -> float:
    """Adapters on the seven linear maps of a layer: rank x (inputs + outputs) of each."""
    heads = shape.query_width + shape.kv_width
    return rank * shape.layers * (2 * heads + 3 * shape.feed_forward + 7 * shape.hidden)


def conversations(shape: ModelShape, tokens: int, gpus: int, gpu_gib: float) -> int:
    """Conversations of ``tokens`` that one rollout server of ``gpus`` holds without evicting."""
    free = gpus * gpu_gib * GIB * (1 - RESERVE) - 2 * shape.parameters
    return max(0, int(free // (4 * shape.layers * shape.kv_width * tokens)))
