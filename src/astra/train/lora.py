"""Low-rank adapters (LoRA): few weights train, and a whole policy is saved."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from astra.rollout.chat import LoadedPolicy
from astra.settings import StageConfig
from astra.train.distributed import is_sharded
from astra.train.errors import TrainingError


class LoRAConfig(StageConfig):
    """Adapters on every linear layer but the output; merged into the weights when saved."""

    rank: int = Field(ge=0)
    """0: train all weights."""
    alpha: int = Field(ge=1)
    """The update is scaled by alpha / rank."""
    dropout: float = Field(ge=0, lt=1)


def add_adapters(policy: LoadedPolicy, config: LoRAConfig) -> None:
    """Wrap the policy's model; nothing where ``rank`` is 0. TrainingError without peft."""
    if not config.rank:
        return
    peft = _peft()
    adapters = peft.LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        lora_dropout=config.dropout,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    policy.model = peft.get_peft_model(policy.model, adapters)


def bare(model: Any) -> Any:
    """The model without what wraps it for its adapters, which stay in its layers."""
    from accelerate.utils import is_peft_model  # late: parameters are read without it

    return model.get_base_model() if is_peft_model(model) else model


def merge_adapters(policy: LoadedPolicy, config: LoRAConfig) -> None:
    """Make the model whole again, its weights including what the adapters learned."""
    if config.rank:
        from astra.train.merging import merged  # late: parameters are read without it

        policy.model = merged(policy.model)


def refuse_sharded_adapters(trainer: Any, config: LoRAConfig) -> None:
    """Merging needs whole weights on every rank. Raises TrainingError under ZeRO-3 and FSDP."""
    if config.rank and is_sharded(trainer):
        raise TrainingError("lora.rank does not go with ZeRO-3 or FSDP; use DDP or ZeRO-2")


def _peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise TrainingError(
            "lora.rank is set, but peft is not installed; `pip install -e '.[lora]'` adds it"
        ) from error
    return peft
