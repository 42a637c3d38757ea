"""Adapters that are merged into bfloat16 weights keep what they learned."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from astra.train.merging import merged, rounded_at_random

LEARNED = 2e-5
"""By how much adapters move weights of about 0.02: a thousandth, as forty steps of RL did."""


def rounded(value: float, times: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return rounded_at_random(torch.full((times,), value), torch.bfloat16, generator).float()


@pytest.mark.parametrize("value", [0.02003, -0.02003, 1e-5, -3.3])
def test_a_value_becomes_one_of_the_two_around_it_and_is_right_on_average(value: float) -> None:
    found = rounded(value, 100_000)
    low, high = sorted(set(found.tolist()))
    assert low < value < high
    assert high - low <= abs(value) / 64  # one step: bfloat16 has 8 significant bits
    step = high - low
    assert float(found.double().mean()) == pytest.approx(value, abs=step / 100)


@pytest.mark.parametrize("value", [0.0, 0.5, -1.25, float("inf")])
def test_a_number_of_bfloat16_stays(value: float) -> None:
    assert set(rounded(value, 1000).tolist()) == {value}


def adapted(dtype: torch.dtype, **options: Any) -> Any:
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2,
    )  # fmt: skip
    adapters = LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM", **options)
    plain: Any = LlamaForCausalLM(shape)
    model: Any = get_peft_model(plain.to(dtype), adapters)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=LEARNED * 8**0.5)
    return model


def changes(model: Any) -> dict[str, torch.Tensor]:
    """What merging adds to each adapted weight, where weights are float32."""
    wide = copy.deepcopy(model).float()
    before = {name: p.detach().clone() for name, p in wide.get_base_model().named_parameters()}
    after = dict(wide.merge_and_unload().named_parameters())
    return {
        name: after[name].detach() - before[name.replace(".weight", ".base_layer.weight")]
        for name in after
        if "_proj" in name
    }


def kept(before: Any, after: Any, learned: dict[str, torch.Tensor]) -> float:
    """How far weights moved along what was learned, as a share of it."""
    old = dict(before.get_base_model().named_parameters())
    new = dict(after.named_parameters())
    along = whole = 0.0
    for name, change in learned.items():
        start = old[name.replace(".weight", ".base_layer.weight")].float()
        along += float(((new[name].float() - start) * change).sum())
        whole += float((change * change).sum())
    return along / whole


def test_bfloat16_weights_keep_what_was_learned_and_nearest_ones_do_not() -> None:
    model = adapted(torch.bfloat16)
    learned = changes(model)
    found = merged(copy.deepcopy(model))
    assert {p.dtype for p in found.parameters()} == {torch.bfloat16}
    assert kept(model, found, learned) == pytest.approx(1.0, abs=0.1)
    assert kept(model, copy.deepcopy(model).merge_and_unload(), learned) < 0.5
    again = merged(copy.deepcopy(model))
    assert all(
        torch.equal(one, other)
        for one, other in zip(found.parameters(), again.parameters(), strict=True)
    )


@pytest.mark.parametrize("options", [{}, {"use_dora": True}])
def test_float32_weights_become_what_peft_makes_of_them(options: dict[str, Any]) -> None:
    model = adapted(torch.float32, **options)
    expected = dict(copy.deepcopy(model).merge_and_unload().named_parameters())
    found = dict(merged(copy.deepcopy(model)).named_parameters())
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_type_that_is_asked_for_is_rounded_to() -> None:
    model = adapted(torch.float32)
    exact = dict(copy.deepcopy(model).merge_and_unload().named_parameters())
    found = dict(merged(copy.deepcopy(model), torch.bfloat16).named_parameters())
    name = next(name for name in found if "q_proj" in name)
    assert found[name].dtype == torch.bfloat16
    away = (found[name].float() - exact[name]).abs() / exact[name].abs()
    assert 1 / 1024 < float(away.max()) <= 1 / 128
