"""What a policy is made of, as its conf states it, and the same in small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

from huggingface_hub.errors import StrictDataclassError
from pydantic import Field, model_validator

from astra.rollout.chat import Dtype, PolicyConfig
from astra.settings import StageConfig
from astra.train.rehearsal.errors import RehearsalError, mismatch

LAYERS = 2
"""Layers of the shrunken model: one boundary between two, which sharding wraps one by one."""
WIDTHS, HEAD_WIDTH = 64, 8
"""What hidden and feed-forward widths, and head size, are divided by."""
SMALL = 1024
"""A hidden width from which on widths are divided; smaller models lose layers alone."""
_STATED = ("model_type", "hidden_size", "intermediate_size", "num_hidden_layers",
           "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
           "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings")  # fmt: skip


class Vocabulary(StageConfig):
    """The tokenizer, as its published configuration states it."""

    words: int = Field(ge=256)
    """Entries before the special ones, which take the ids after them in this order."""
    special: tuple[str, ...] = Field(min_length=1)
    eos: str
    pad: str | None
    template_hash: str
    """The first 16 digits of the SHA-256 of the publisher's chat template."""

    @model_validator(mode="after")
    def _ends_are_tokens(self) -> Self:
        for name, token in (("eos", self.eos), ("pad", self.pad)):
            if token is not None and token not in self.special:
                raise ValueError(f"{name} is {token!r}, which is not among the special tokens")
        return self


class Architecture(StageConfig):
    """Block ``architecture``: a dense decoder, under the names of its published config.json."""

    model_type: str
    hidden_size: int = Field(ge=1)
    intermediate_size: int = Field(ge=1)
    num_hidden_layers: int = Field(ge=1)
    num_attention_heads: int = Field(ge=1)
    num_key_value_heads: int = Field(ge=1)
    head_dim: int = Field(ge=1)
    vocab_size: int = Field(ge=1)
    """Rows of the embedding, more than the tokenizer has entries."""
    max_position_embeddings: int = Field(ge=1)
    rope_theta: float
    rms_norm_eps: float
    tie_word_embeddings: bool
    tokenizer: Vocabulary | None = None
    """None: the policy is a folder, which brings its own."""

    @property
    def parameters(self) -> int:
        """All but the norms' few."""
        heads = 2 * (self.num_attention_heads + self.num_key_value_heads) * self.head_dim
        layer = self.hidden_size * (heads + 3 * self.intermediate_size)
        ends = (1 if self.tie_word_embeddings else 2) * self.vocab_size * self.hidden_size
        return self.num_hidden_layers * layer + ends

    def shrunken(self) -> Self:
        """Few layers, small widths, one key-value head; the ratios of widths and of query to
        key-value heads, the vocabulary and everything else stay."""
        layers = min(LAYERS, self.num_hidden_layers)
        if self.hidden_size < SMALL:
            return self.model_copy(update={"num_hidden_layers": layers})
        return self.model_copy(
            update={
                "num_hidden_layers": layers,
                "hidden_size": self.hidden_size // WIDTHS,
                "intermediate_size": self.intermediate_size // WIDTHS,
                "num_attention_heads": self.num_attention_heads // self.num_key_value_heads,
                "num_key_value_heads": 1,
                "head_dim": self.head_dim // HEAD_WIDTH,
            }
        )


def architecture_of(policy: PolicyConfig, stated: Architecture | None) -> Architecture:
    """The policy's architecture: as ``stated`` by its conf, or as its config.json has it.

    Raises RehearsalError where both can be read and differ, and where neither can.
    """
    config = read_config(policy)
    if config is None:
        if stated is None:
            raise RehearsalError(
                f"policy.path: {policy.path} can be read neither as a folder nor from the hub's "
                "cache, and its conf states no `architecture`; expected one of the three: download "
                "the model, or state it as conf/policy/qwen3_14b.yaml does"
            )
        return stated
    read = _from_config(config)
    for name in _STATED if stated is not None else ():
        found, expected = getattr(read, name), getattr(stated, name)
        if found != expected:
            raise mismatch(
                f"architecture.{name}", found, expected,
                f"the config.json of policy.path {policy.path} says the former; set policy.path to "
                "the model that the conf means, or correct the conf",
            )  # fmt: skip
    return read.model_copy(update={"tokenizer": stated.tokenizer if stated else None})


def read_config(policy: PolicyConfig) -> Any | None:
    """The policy's configuration from its folder or the hub's cache; None where it is neither."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(
            policy.path, revision=policy.revision or "main", local_files_only=True
        )
    except OSError:
        return None
    except (ValueError, StrictDataclassError) as error:
        raise RehearsalError(
            f"policy.path: found a config.json in {policy.path} that transformers does not take "
            f"({error}), expected one of a model that it knows"
        ) from error


def _from_config(config: Any) -> Architecture:
    heads = config.num_attention_heads
    values = {name: getattr(config, name) for name in _STATED if name != "head_dim"}
    values["head_dim"] = getattr(config, "head_dim", None) or config.hidden_size // heads
    rope = config.rope_parameters["rope_theta"]
    return Architecture.model_validate(values | {"rope_theta": rope})


def model_config(shape: Architecture, eos_id: int, pad_id: int, dtype: Dtype) -> Any:
    """The configuration of a model of ``shape``, as transformers has it."""
    from transformers import AutoConfig

    values = {name: getattr(shape, name) for name in _STATED if name != "model_type"}
    return AutoConfig.for_model(
        shape.model_type,
        **values,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        eos_token_id=eos_id,
        pad_token_id=pad_id,
        bos_token_id=None,
        dtype=dtype,
    )


def make_model(config: Any) -> Any:
    """A randomly initialised model of that configuration; the same weights every time."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).to(config.dtype)


def saved_shape(folder: Path) -> dict[str, Any]:
    """The part of a saved model's config.json that its weights' shapes follow from."""
    config = json.loads((folder / "config.json").read_text())
    return {name: config.get(name) for name in _STATED}


def saved_dtype(folder: Path) -> Dtype:
    """The type that a saved model's weights are in."""
    return json.loads((folder / "config.json").read_text())["dtype"]
