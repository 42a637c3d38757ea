"""Which embedding rows train: the others keep every bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from training_world import make_sample

from astra.rollout.chat import LoadedPolicy, PolicyConfig, load_policy
from astra.train.optimizers import MuonAdamW, train_added_rows_only, train_batch_rows_only
from astra.train.sft import encode_samples
from astra.train.sft_trainer import assistant_loss


@pytest.fixture
def policy() -> LoadedPolicy:
    torch.set_num_threads(1)
    return load_policy(PolicyConfig.saved("policies/tiny", "float32"))


def moved_rows(policy: LoadedPolicy, steps: int = 3) -> tuple[set[int], set[int]]:
    """Rows of the embeddings that some steps changed, and the token ids of the batch."""
    weight: torch.Tensor = policy.model.get_input_embeddings().weight
    before = weight.detach().clone()
    optimizer = MuonAdamW(policy.model, muon_lr=0.01, adamw_lr=3e-3)
    (row,) = encode_samples([make_sample(1)], policy.codec, 512).rows
    ids, labels = torch.tensor([row["input_ids"]]), torch.tensor([row["labels"]])
    for _ in range(steps):
        optimizer.zero_grad()
        assistant_loss(policy.model, ids, labels)[0].backward()
        optimizer.step()
    changed = (weight.detach() != before).any(1).nonzero()[:, 0].tolist()
    return set(changed), set(row["input_ids"])


def test_without_help_every_row_moves(policy: LoadedPolicy) -> None:
    moved, _ = moved_rows(policy)
    assert len(moved) == policy.model.config.vocab_size


def test_added_rows_are_the_chat_markers_alone(policy: LoadedPolicy) -> None:
    tokenizer: Any = policy.codec.tokenizer
    train_added_rows_only(policy.model, tokenizer)
    moved, _ = moved_rows(policy)
    assert moved == set(tokenizer.added_tokens_decoder)
    assert tokenizer.eos_token_id in moved
    assert tokenizer.encode(" price")[0] not in moved


def test_weight_decay_scales_the_rows_that_get_no_gradient_all_alike(policy: LoadedPolicy) -> None:
    train_added_rows_only(policy.model, policy.codec.tokenizer)
    weight: torch.Tensor = policy.model.get_input_embeddings().weight
    before = weight.detach().clone()
    optimizer = MuonAdamW(policy.model, muon_lr=0.01, adamw_lr=3e-3, weight_decay=0.1)
    policy.model(input_ids=torch.tensor([[5, 6, 7]])).logits.sum().backward()
    optimizer.step()
    added = sorted(policy.codec.tokenizer.added_tokens_decoder)
    others = torch.ones(len(weight), dtype=torch.bool)
    others[added] = False
    torch.testing.assert_close(weight.detach()[others], before[others] * (1 - 3e-3 * 0.1))


def test_batch_rows_are_those_of_the_batch(policy: LoadedPolicy) -> None:
    train_batch_rows_only(policy.model)
    moved, batch = moved_rows(policy)
    assert moved == batch


def test_generating_does_not_change_which_rows_train(policy: LoadedPolicy) -> None:
    """The mask of the batch stays when the model runs without gradients in between."""
    train_batch_rows_only(policy.model)
    weight: torch.Tensor = policy.model.get_input_embeddings().weight
    loss = policy.model(input_ids=torch.tensor([[5, 6, 7]])).logits.logsumexp(-1).sum()
    with torch.no_grad():
        policy.model(input_ids=torch.tensor([[100, 200]]))
    loss.backward()
    assert weight.grad is not None
    assert set(weight.grad.any(1).nonzero()[:, 0].tolist()) == {5, 6, 7}
