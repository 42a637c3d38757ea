"""The trainer that projects trained positions alone computes what its parent computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from torch import nn
from training_world import make_sample
from trl.trainer.sft_config import SFTConfig as TRLSFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from astra.rollout.chat import LoadedPolicy, PolicyConfig, load_policy
from astra.train.sft import encode_samples
from astra.train.sft_trainer import AssistantSFTTrainer, assistant_loss


@pytest.fixture
def policy() -> LoadedPolicy:
    torch.set_num_threads(1)
    return load_policy(PolicyConfig(path="policies/tiny"))


def trainer(kind: type[SFTTrainer], policy: LoadedPolicy, folder: Path) -> SFTTrainer:
    rows = encode_samples([make_sample(seed) for seed in range(4)], policy.codec, 512).rows
    return kind(
        model=policy.model,
        args=TRLSFTConfig(
            output_dir=str(folder), per_device_train_batch_size=4, report_to="none", use_cpu=True,
            bf16=False, dataset_kwargs={"skip_prepare_dataset": True}, max_length=None,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=policy.codec.tokenizer,
    )  # fmt: skip


def loss_and_gradients(one: SFTTrainer, inputs: Any) -> tuple[float, dict[str, torch.Tensor]]:
    one.model.zero_grad()
    one.model.train()
    loss = one.compute_loss(one.model, dict(inputs))
    loss.backward()
    grown = {n: p.grad.clone() for n, p in one.model.named_parameters() if p.grad is not None}
    return float(loss.detach()), grown


def test_loss_gradients_and_accuracy_equal_the_parents(
    policy: LoadedPolicy, tmp_path: Path
) -> None:
    ours = trainer(AssistantSFTTrainer, policy, tmp_path)
    theirs = trainer(SFTTrainer, policy, tmp_path)
    inputs = next(iter(ours.get_train_dataloader()))
    widths = inputs["attention_mask"].sum(1)
    assert len(set(widths.tolist())) > 1  # some rows are padded
    loss, gradients = loss_and_gradients(ours, inputs)
    expected_loss, expected = loss_and_gradients(theirs, inputs)
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-3, atol=1e-6, msg=name)
    accuracy = [one._metrics["train"]["mean_token_accuracy"][-1] for one in (ours, theirs)]
    assert accuracy[0] == pytest.approx(accuracy[1])


def test_the_loss_ignores_what_stands_in_the_padding(policy: LoadedPolicy) -> None:
    (row,) = encode_samples([make_sample(5)], policy.codec, 512).rows
    width = len(row["input_ids"]) + 9
    labels = torch.tensor([row["labels"] + [-100] * 9])
    sums = [
        assistant_loss(policy.model, torch.tensor([row["input_ids"] + [filler] * 9]), labels)[
            0
        ].item()
        for filler in (0, 77)
    ]
    assert labels.shape == (1, width)
    assert sums[0] == sums[1]


def test_a_wrapped_model_takes_the_parents_path(policy: LoadedPolicy, tmp_path: Path) -> None:
    """A wrapper's own forward gathers or reduces; it must be called."""

    class Wrapper(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module
            self.calls = 0

        def forward(self, **inputs: Any) -> Any:
            self.calls += 1
            return self.module(**inputs)

    one = trainer(AssistantSFTTrainer, policy, tmp_path)
    wrapped = Wrapper(policy.model)
    one.compute_loss(wrapped, dict(next(iter(one.get_train_dataloader()))))
    assert wrapped.calls == 1
