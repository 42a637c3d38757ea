"""Recipe of the tiny policy: ``python -m astra.train.tiny.base`` (make tiny-base).

A Qwen3-architecture model of about a million parameters with the tokenizer of tokenizer.py,
pretrained on the generic text of corpus.py: it copies, looks things up and writes JSON, and has
never seen a chat, a tool call, an arena or a tool server.
"""

from __future__ import annotations

import argparse
import logging
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from astra.rollout.chat import template_text
from astra.stage import Progress
from astra.train.tiny.corpus import Span, documents
from astra.train.tiny.tokenizer import build_tokenizer

INITIALIZER_RANGE = 0.06
"""The standard deviation of initial weights. Under the usual 0.02, copying arguments never emerged
within a training of minutes."""
STEPS, ROWS, LENGTH = 2000, 10, 416
"""Optimizer steps, rows of a batch, tokens of a row: 8.3 million tokens."""
MUON_RATE, ADAMW_RATE, WEIGHT_DECAY = 0.02, 3e-3, 0.01
WARMUP_SHARE, FINAL_SHARE = 0.05, 0.05
IGNORED = -100


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


def batches(tokenizer: Any, seed: int) -> Iterator[tuple[Any, Any]]:
    """Endless (ids, labels) of shape (ROWS, LENGTH), each row filled with whole documents.

    Labels are -100 where a span is not trained and in the padding at a row's end. A document
    is never cut: what it asks for could no longer be found.
    """
    import torch

    ids = torch.full((ROWS, LENGTH), tokenizer.pad_token_id)
    labels = torch.full((ROWS, LENGTH), IGNORED)
    row = column = 0
    for document in documents(seed):
        tokens, targets = encode_document(tokenizer, document)
        if len(tokens) > LENGTH:
            continue
        if column + len(tokens) > LENGTH:
            row, column = row + 1, 0
        if row == ROWS:
            yield ids.clone(), labels.clone()
            ids.fill_(tokenizer.pad_token_id)
            labels.fill_(IGNORED)
            row = 0
        ids[row, column : column + len(tokens)] = torch.tensor(tokens)
        labels[row, column : column + len(tokens)] = torch.tensor(targets)
        column += len(tokens)


def encode_document(tokenizer: Any, document: Sequence[Span]) -> tuple[list[int], list[int]]:
    """Ids and labels of one length; labels are -100 where a span is not trained."""
    tokens: list[int] = []
    targets: list[int] = []
    texts = [text for text, _ in document]
    spans = tokenizer(texts, add_special_tokens=False)["input_ids"]
    for encoded, (_, trained) in zip(spans, document, strict=True):
        tokens += encoded
        targets += encoded if trained else [IGNORED] * len(encoded)
    return tokens, targets


def rate(step: int, steps: int) -> float:
    """Share of the learning rate at ``step``: linear warm-up, then a cosine to FINAL_SHARE."""
    warmup = max(1, int(steps * WARMUP_SHARE))
    if step < warmup:
        return (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    return FINAL_SHARE + (1 - FINAL_SHARE) * 0.5 * (1 + math.cos(math.pi * progress))


def pretrain(model: Any, tokenizer: Any, steps: int, seed: int = 0) -> float:
    """Train ``model`` in place; returns the running mean of the loss (nats per trained token)."""
    import torch
    from torch.nn.functional import cross_entropy

    from astra.train.optimizers import MuonAdamW, train_batch_rows_only

    train_batch_rows_only(model)
    optimizer = MuonAdamW(model, MUON_RATE, ADAMW_RATE, WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, steps))
    progress = Progress("steps", steps)
    running = math.nan
    model.train()
    for _, (ids, labels) in zip(range(steps), batches(tokenizer, seed), strict=False):
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
        targets = labels[:, 1:]
        trained = targets != IGNORED
        # Logits of trained positions alone: the vocabulary is a third of the model.
        loss = cross_entropy(model.lm_head(hidden[trained]), targets[trained])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        value = float(loss.detach())
        running = value if math.isnan(running) else 0.95 * running + 0.05 * value
        progress.advance(note=f"loss {running:.3f}")
    progress.close()
    return running


def write_base(folder: Path, seed: int = 0, steps: int = STEPS) -> None:
    """Write tokenizer, template and pretrained model: a complete policy folder."""
    tokenizer = build_tokenizer()
    tokenizer.chat_template = template_text("compact")
    model = build_model(tokenizer, seed)
    if steps:
        pretrain(model, tokenizer, steps, seed)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description="Write the tiny base policy.")
    parser.add_argument("--out", type=Path, default=Path("policies/tiny"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="[tiny-base] %(message)s")
    torch.set_num_threads(arguments.threads)
    write_base(arguments.out, arguments.seed, arguments.steps)
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
