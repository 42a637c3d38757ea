"""A checkpoint of a training run as a policy folder that transformers and vLLM load."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from astra.rollout.chat import Dtype
from astra.train.checkpoints import ADAPTER_CONFIG, STATE_FILE, save_policy, served_weights
from astra.train.errors import TrainingError

FSDP_SHARDS = "pytorch_model_fsdp_0"
"""Where accelerate writes the weights of ranks under FSDP2."""


def export_checkpoint(checkpoint: Path, folder: Path, dtype: Dtype) -> None:
    """Write the policy that a checkpoint holds to ``folder``, its weights in ``dtype``.

    Shards of FSDP2 are put together and adapters merged into what they adapt, on the CPU, which
    needs memory for the whole model in float32. Raises TrainingError for a folder that is no
    whole checkpoint, or holds no weights.
    """
    from transformers import AutoTokenizer

    if not (checkpoint / STATE_FILE).is_file():
        raise TrainingError(
            f"{checkpoint} is no whole checkpoint: it has no {STATE_FILE}. Whole ones are in "
            "runs/STAGE/KEY/checkpoint-STEP"
        )
    try:
        model = _loaded(checkpoint, dtype)
        tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    except (OSError, ValueError) as error:
        raise TrainingError(f"checkpoint {checkpoint} does not load: {error}") from error
    save_policy(model, tokenizer, folder, served_weights(model, None, dtype))


def merge_adapter(adapter: Path, folder: Path, dtype: Dtype) -> None:
    """Write the policy that a LoRA adapter makes of what it adapts to ``folder``, replacing it.

    Its weights come in ``dtype``, tokenizer and template from the adapter. Raises TrainingError
    where either does not load.
    """
    from transformers import AutoTokenizer

    try:
        model = _merged(adapter, dtype)
        tokenizer = AutoTokenizer.from_pretrained(adapter)
    except (OSError, ValueError) as error:
        raise TrainingError(f"adapter {adapter} does not load: {error}") from error
    save_policy(model, tokenizer, folder, served_weights(model, None, dtype))


def _merged(adapter: Path, dtype: Dtype) -> Any:
    import torch
    from peft import AutoPeftModelForCausalLM

    from astra.train.merging import merged

    adapted: Any = AutoPeftModelForCausalLM.from_pretrained(adapter, dtype=torch.float32)
    return merged(adapted, getattr(torch, dtype))


def _loaded(checkpoint: Path, dtype: Dtype) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    if (checkpoint / ADAPTER_CONFIG).is_file():
        return _merged(checkpoint, dtype)
    if not (checkpoint / FSDP_SHARDS).is_dir():
        return AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    from accelerate.utils import merge_fsdp_weights

    with TemporaryDirectory(dir=checkpoint.parent) as whole:
        merge_fsdp_weights(str(checkpoint / FSDP_SHARDS), whole)
        for path in checkpoint.glob("*.json"):
            Path(whole, path.name).write_bytes(path.read_bytes())
        model: Any = AutoModelForCausalLM.from_pretrained(whole, dtype=torch.float32)
        return model
