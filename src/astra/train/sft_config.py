"""Block ``sft``. Defaults are the paper's wherever it states one (ASTRA section 5)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from astra.rollout.chat import PolicyConfig
from astra.settings import StageConfig
from astra.train.lora import LoRAConfig


class SFTConfig(StageConfig):
    """Supervised fine-tuning on ``data/sft_set.parquet`` (ASTRA section 5.3)."""

    policy: PolicyConfig
    seed: int = 0
    epochs: float = Field(default=2.0, gt=0)
    max_steps: int | None = Field(default=None, ge=1)
    """Upper bound on optimizer steps; None: ``epochs`` decides."""
    max_tokens: int = Field(default=20480, ge=16)
    """Longer samples are dropped, and counted."""
    batch_size: int = Field(default=32, ge=1)
    """Samples per optimizer step, over all devices."""
    micro_batch_size: int = Field(default=1, ge=1)
    """Samples per forward pass of one device."""
    length_grouped: bool = False
    """Put samples of like length together: less padding, a less random order."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """``muon``: Muon for the hidden matrices, AdamW for the rest."""
    learning_rate: float = Field(default=5e-6, gt=0)
    muon_learning_rate: float = Field(default=0.018, gt=0)
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    warmup_share: float = Field(default=0.05, ge=0, lt=1)
    """Of all steps; a cosine to zero follows."""
    eval_steps: int = Field(default=50, ge=1)
    patience: int = Field(default=0, ge=0)
    """Evaluations without a lower loss before training ends; 0: never."""
    save_steps: int = Field(default=50, ge=1)
    keep_optimizer_states: int = Field(default=1, ge=1)
    """Of the newest checkpoints; older ones keep their weights only."""
    embedding_rows: Literal["all", "added"] = "all"
    """``added``: only rows of added tokens train (optimizers.train_added_rows_only)."""
    activation_checkpointing: bool = False
    lora: LoRAConfig = LoRAConfig()
    context_parallel: int = Field(default=1, ge=1)
    """Devices that share one sequence; above 1 under FSDP2 only (conf/accelerate/)."""
