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
from astra.train import sft_trainer
from astra.train.sft import encode_samples
from astra.train.sft_trainer import IGNORED, AssistantSFTTrainer, assistant_loss


@pytest.fixture
def policy() -> LoadedPolicy:
    torch.set_num_threads(1)
    return load_policy(PolicyConfig.saved("policies/tiny", "float32"))


def trainer(
    kind: type[SFTTrainer], policy: LoadedPolicy, folder: Path, bf16: bool = False
) -> SFTTrainer:
    rows = encode_samples([make_sample(seed) for seed in range(4)], policy.codec, 512).rows
    return kind(
        model=policy.model,
        args=TRLSFTConfig(
            output_dir=str(folder), per_device_train_batch_size=4, report_to="none", use_cpu=True,
            bf16=bf16, dataset_kwargs={"skip_prepare_dataset": True}, max_length=None,
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


@pytest.mark.parametrize("bf16", [False, True])
def test_logits_beyond_the_bound_are_trls_and_the_loss_is_the_same(
    policy: LoadedPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bf16: bool
) -> None:
    """One trained token decides which head computes; both compute in the trainer's type."""
    one = trainer(AssistantSFTTrainer, policy, tmp_path, bf16)
    one.model = one.accelerator.prepare_model(one.model)  # as training does: autocast where bf16
    inputs = next(iter(one.get_train_dataloader()))
    trained = int((inputs["labels"][:, 1:] != IGNORED).sum())
    bytes_ = sft_trainer.LOGIT_BYTES * trained * policy.model.config.vocab_size
    kinds: list[torch.dtype] = []
    linear = policy.model.model.layers[0].mlp.up_proj
    linear.register_forward_hook(lambda _module, _args, out: kinds.append(out.dtype))
    found = []
    for bound in (bytes_, bytes_ - 1):
        monkeypatch.setattr(sft_trainer, "OWN_HEAD_BYTES", bound)
        found.append(loss_and_gradients(one, inputs))
    assert "entropy" in one._metrics["train"], "the parent's path logs it, ours does not"
    assert len(one._metrics["train"]["entropy"]) == 1
    assert set(kinds) == {torch.bfloat16 if bf16 else torch.float32}
    (own, grown), (theirs, expected) = found
    assert own == pytest.approx(theirs, rel=1e-2 if bf16 else 1e-5)
    for name, gradient in grown.items():
        assert gradient.dtype == torch.float32
        gap = (gradient - expected[name]).norm() / expected[name].norm()
        assert gap < (3e-2 if bf16 else 1e-4), name


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


def test_samples_of_a_batch_do_not_see_each_other(policy: LoadedPolicy, tmp_path: Path) -> None:
    """One sample a row. Packed into one row without a kernel that tells them apart, each would
    be trained on what stands before it."""
    one = trainer(AssistantSFTTrainer, policy, tmp_path)
    rows = list(one.train_dataset)
    batch = one.data_collator(rows)
    assert len(batch["input_ids"]) == len(rows) == 4
    assert not {"position_ids", "seq_idx", "cu_seq_lens_q"} & set(batch), "not padding-free"

    def loss(ids: torch.Tensor, labels: torch.Tensor) -> float:
        with torch.no_grad():
            return assistant_loss(policy.model, ids, labels)[0].item()

    def alone(row: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor([row["input_ids"]]), torch.tensor([row["labels"]])

    together = loss(batch["input_ids"], batch["labels"])
    assert together == pytest.approx(sum(loss(*alone(row)) for row in rows), rel=1e-5)
    (first, _), (second, labels) = alone(rows[0]), alone(rows[1])
    packed = loss(
        torch.cat([first, second], 1), torch.cat([torch.full_like(first, IGNORED), labels], 1)
    )
    assert abs(packed - loss(second, labels)) > 1e-2, "a packed sample is not what it is alone"


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
