"""Attention of rows in bfloat16 against the fused kernel, and the engine that uses it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from test_batched import engine, model, prompts, reference
from test_batched import test_rows_pause_resume_and_compact_without_disturbing_each_other as pausing
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from astra.rollout import row_batch
from astra.rollout.attention import ROWS, attending, rows_attention
from astra.rollout.engine import Sampling

__all__ = ["model"]


@pytest.fixture
def halved(model: Any) -> Any:
    return copy.deepcopy(model).to(torch.bfloat16)


def test_unused_columns_and_hidden_ones_are_not_seen() -> None:
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(5, 6, 1, 16, generator=generator)
    key, value = (torch.randn(5, 2, 40, 16, generator=generator) for _ in range(2))
    mask = torch.rand(5, 1, 1, 33, generator=generator) > 0.4
    mask[:, :, :, 0] = True
    found, _ = ALL_ATTENTION_FUNCTIONS[ROWS](None, query, key, value, mask, scaling=0.25)
    repeated = [states[:, :, :33].repeat_interleave(3, 1) for states in (key, value)]
    expected = scaled_dot_product_attention(query, *repeated, attn_mask=mask, scale=0.25)
    torch.testing.assert_close(found, expected.transpose(1, 2), rtol=1e-5, atol=1e-5)


def test_bfloat16_takes_products_and_float32_stays_as_it_is(model: Any, halved: Any) -> None:
    assert rows_attention(halved) == ROWS
    assert rows_attention(model) == "sdpa"
    with attending(model, ROWS):
        assert model.config._attn_implementation == ROWS
    assert model.config._attn_implementation == "sdpa", "others attend as before"


def test_the_engine_in_bfloat16_gives_the_log_probabilities_of_a_plain_pass(halved: Any) -> None:
    given = prompts(4, seed=1)
    one = engine(halved)
    one.start(given, [150] * len(given), Sampling(1.0, seed=4))  # beyond one chunk of the cache
    turns = {turn.row: turn for turn in one.poll()}
    while len(turns) < len(given):
        turns |= {turn.row: turn for turn in one.poll()}
    for row, prompt in enumerate(given):
        expected = reference(halved, [*prompt, *turns[row].ids], len(prompt))
        gaps = torch.tensor(turns[row].logprobs) - torch.tensor(expected)
        assert gaps.abs().mean() < 0.02, "what bfloat16 leaves open, of logits that differ by ones"


@pytest.mark.parametrize("longest_fed", [row_batch.FED, 0])
def test_rows_pause_and_resume_with_products_too(
    model: Any, monkeypatch: pytest.MonkeyPatch, longest_fed: int
) -> None:
    """In float32, so that what is compared is exact."""
    monkeypatch.setattr(row_batch, "rows_attention", lambda _model: ROWS)
    pausing(model, monkeypatch, longest_fed)


@pytest.mark.parametrize("length", [1, 2, 3, 514])
@pytest.mark.parametrize("joins", [False, True])
def test_prompts_of_which_a_single_token_is_left_to_compute(
    model: Any, monkeypatch: pytest.MonkeyPatch, length: int, joins: bool
) -> None:
    """The products are not for what is computed before a row's last token: of two tokens one
    is, of 514 one more than are computed at a time."""
    monkeypatch.setattr(row_batch, "rows_attention", lambda _model: ROWS)
    prompt, one = [*range(7, 7 + length)], engine(model)
    one.start([[5, 6]] if joins else [prompt], [3], Sampling(0.0))
    if joins:
        one._batch.join(1, prompt, 3)
    turn = next(turn for turn in one.poll() if turn.row == int(joins))
    assert turn.logprobs == pytest.approx(reference(model, prompt + turn.ids, length), abs=2e-5)
