"""Recipe of the tiny policy: ``python -m astra.train.tiny_base`` (make tiny-base).

A Qwen3-architecture model of about a million parameters with the tokenizer of
tiny_tokenizer.py. It sees no arena, no tool server and no tool of theirs.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from astra.rollout.chat import template_text
from astra.train.tiny_tokenizer import build_tokenizer

INITIALIZER_RANGE = 0.06
"""With the usual 0.02, copying arguments never emerged within a training of minutes."""


def build_model(tokenizer: Any, seed: int = 0) -> Any:
    """A randomly initialised model for the tokenizer's vocabulary."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=384,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        initializer_range=INITIALIZER_RANGE,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        dtype="float32",
    )
    return Qwen3ForCausalLM(config)


def write_base(folder: Path, seed: int = 0) -> None:
    """Write tokenizer, template and model: a complete policy folder."""
    tokenizer = build_tokenizer(seed)
    tokenizer.chat_template = template_text("compact")
    model = build_model(tokenizer, seed)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the tiny base policy.")
    parser.add_argument("--out", type=Path, default=Path("policies/tiny"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    write_base(arguments.out, arguments.seed)
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
