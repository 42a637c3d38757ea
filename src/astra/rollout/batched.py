"""The engine for small policies: one batched decoding loop whose cache outlives turns.

Rows pause for their tools and resume at any step (row_batch.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from astra.rollout.engine import Sampling, Turn
from astra.rollout.row_batch import Row, RowBatch

RESUME_SHARE = 8
"""Turns are handed out when 1/8 of the live rows have ended one, so that tools run together."""


class BatchedEngine:
    """Generates with a transformers model in evaluation mode, without gradients.

    All rows are sampled alike, from one stream of random numbers.
    """

    def __init__(self, model: Any, eos_id: int, pad_id: int, max_rows: int = 128) -> None:
        self.max_rows = max_rows
        self.weight_version = 0
        self._batch = RowBatch(model, eos_id, pad_id)

    def start(
        self, prompts: Sequence[Sequence[int]], budgets: Sequence[int], sampling: Sampling
    ) -> None:
        if len(prompts) > self.max_rows:
            raise ValueError(f"{len(prompts)} rows, at most {self.max_rows}")
        self._temperature = sampling.temperature
        self._generator = torch.Generator(self._batch.device).manual_seed(sampling.seed)
        self._batch.start(prompts, budgets)

    def poll(self) -> list[Turn]:
        turns: list[Turn] = []
        while any(row.active for row in self._batch.rows):
            turns += self._batch.step(self._sample)
            live = sum(not row.done for row in self._batch.rows)
            if len(turns) * RESUME_SHARE >= live:
                break
        return turns

    def resume(self, row: int, suffix: Sequence[int], budget: int) -> None:
        self._batch.resume(row, suffix, budget)

    def finish(self, row: int) -> None:
        self._batch.finish(row)

    def _sample(self, logits: torch.Tensor, rows: Sequence[Row]) -> tuple[list[int], list[float]]:
        if self._temperature > 0:
            scores = torch.log_softmax(logits / self._temperature, -1)
            drawn = draw_tokens(scores.exp(), self._generator)
        else:
            scores = torch.log_softmax(logits, -1)
            drawn = scores.argmax(-1, keepdim=True)
        return drawn[:, 0].tolist(), scores.gather(1, drawn)[:, 0].tolist()


def draw_tokens(probabilities: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """One token a row, (rows, 1), from probabilities of (rows, vocabulary), which need not add up
    to 1. By inversion: five times as fast as torch.multinomial on a CPU."""
    total = probabilities.cumsum(-1)
    shape = (len(probabilities), 1)
    uniform = torch.rand(shape, generator=generator, device=probabilities.device)
    drawn = torch.searchsorted(total, uniform * total[:, -1:], right=True)
    return drawn.clamp(max=probabilities.shape[-1] - 1)
