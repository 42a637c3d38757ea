"""Parameters of stage ``sft``; conf/sft/base.yaml names each value's source."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from astra.rollout.chat import PolicyConfig
from astra.settings import StageConfig
from astra.train.layout import Layout, refuse_tree
from astra.train.lora import LoRAConfig

OWN_HEAD_BYTES = 1 << 30
"""The most that the logits of one forward pass may take; above it TRL's head is used (ours)."""
LOGIT_BYTES = 16
"""Bytes of a trained token and entry of the vocabulary: logits in bfloat16 (2), in float32 (4),
their log-softmax (4) and its gradient (4) in float32, and the gradient in bfloat16 (2)."""


class SFTConfig(StageConfig):
    """Supervised fine-tuning on ``data/sft_set.parquet`` (ASTRA section 5.3)."""

    policy: PolicyConfig
    seed: int
    epochs: float = Field(gt=0)
    max_steps: int | None = Field(ge=1)
    """Upper bound on optimizer steps; None: ``epochs`` decides."""
    conversations: int | None = Field(ge=1)
    """So many of ``data/conversations.parquet``, drawn by their ids, are trained on besides, and in
    the same share evaluated on; fewer where there are fewer. None: none, and it is not read."""
    max_tokens: int = Field(ge=16)
    """Longer samples are dropped, and counted."""
    batch_size: int = Field(ge=1)
    """Samples per optimizer step, over all devices."""
    micro_batch_size: int = Field(ge=1)
    """Samples per forward pass of one device."""
    layout: Layout
    length_grouped: bool
    """Whether samples of like length go together: less padding, a less random order."""
    optimizer: Literal["adamw", "muon"]
    """``muon``: Muon for the hidden matrices, AdamW for the rest."""
    learning_rate: float = Field(gt=0)
    """AdamW's, at its highest."""
    muon_learning_rate: float = Field(gt=0)
    """Muon's, at its highest; optimizer ``adamw`` has no use for it."""
    weight_decay: float
    max_grad_norm: float
    warmup_share: float = Field(ge=0, lt=1)
    """The share of all steps in which the rate rises; it then falls to zero along a cosine."""
    eval_steps: int = Field(ge=1)
    """Steps from one evaluation to the next."""
    patience: int = Field(ge=0)
    """Evaluations without a lower loss before training ends; 0: never."""
    save_steps: int = Field(ge=1)
    """Steps from one checkpoint to the next."""
    keep_checkpoints: int = Field(ge=1)
    """How many of the newest checkpoints are kept; older ones are deleted."""
    keep_optimizer_states: int = Field(ge=1)
    """How many of those keep their optimizer's state; the others keep weights."""
    embedding_rows: Literal["all", "added"]
    """Which embedding rows get gradients; ``added``: those of added tokens, such as chat markers,
    only. ``weight_decay`` scales all rows in any case, and with adapters (``lora.rank`` above 0)
    none trains (optimizers.train_added_rows_only)."""
    activation_checkpointing: bool
    lora: LoRAConfig
    context_parallel: int = Field(ge=1)
    """Devices that share one sequence; above 1 under FSDP2 only (conf/accelerate/)."""

    @model_validator(mode="after")
    def _a_tree_is_computed_once(self) -> Self:
        if self.layout == "tree":
            refuse_tree(self.activation_checkpointing)
        return self
