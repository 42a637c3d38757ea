"""The planner's formulas against hand-worked numbers."""

import pytest

from astra.train.planner import GIB, SHAPES, ModelShape, Setup, Sharding, conversations, plan

ROUND = ModelShape(parameters=1e9, hidden=1000, layers=10, kv_width=100, vocabulary=10_000)


def setup(**options: object) -> Setup:
    settings = {"shape": ROUND, "tokens": 1000, "mean_tokens": 500, "batch": 32, "gpus": 8}
    return Setup(**(settings | options))  # type: ignore[arg-type]


def test_memory_by_hand() -> None:
    made = plan(setup(sharding=Sharding.ZERO3)).memory
    # weights 2e9 / 8, gradients 2e9 / 8, optimizer 12e9 / 8
    assert (made["weights"], made["gradients"], made["optimizer"]) == (2.5e8, 2.5e8, 1.5e9)
    # checkpointed: 2 * 1000 * 1000 * 10 + 34 * 1000 * 1000; logits 6 * 1000 * 10,000
    assert (made["activations"], made["logits"]) == (5.4e7, 6e7)
    assert plan(setup(checkpointing=False)).memory["activations"] == 3.4e8


@pytest.mark.parametrize(
    ("sharding", "weights", "gradients", "optimizer"),
    [("ddp", 2e9, 2e9, 12e9), ("zero2", 2e9, 2.5e8, 1.5e9), ("fsdp2", 2.5e8, 2.5e8, 1.5e9)],
)
def test_what_each_way_of_sharding_spreads(
    sharding: str, weights: float, gradients: float, optimizer: float
) -> None:
    made = plan(setup(sharding=Sharding(sharding))).memory
    assert (made["weights"], made["gradients"], made["optimizer"]) == (
        weights, gradients, optimizer,
    )  # fmt: skip


def test_time_by_hand() -> None:
    made = plan(setup(gpu_tflops=100.0, utilisation=0.5))
    # 8 * 1e9 * 32 * 500 FLOP over 8 * 50e12 a second
    assert made.step_s == pytest.approx(0.32)
    assert made.tokens_per_s == pytest.approx(50_000)
    assert made.accumulation == 4


def test_context_parallel_splits_the_sequence_and_lora_the_state() -> None:
    whole, halved = plan(setup()).memory, plan(setup(context_parallel=2)).memory
    assert halved["activations"] == whole["activations"] / 2
    assert halved["logits"] == whole["logits"] / 2
    light = plan(setup(lora_rank=16)).memory
    assert light["weights"] == whole["weights"]
    assert light["optimizer"] < whole["optimizer"] / 100


def test_uneven_setups_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of context_parallel"):
        plan(setup(context_parallel=3))
    with pytest.raises(ValueError, match="no multiple of 8 replicas"):
        plan(setup(batch=30))


def test_what_is_known_to_fit_fits_and_what_is_known_not_to_does_not() -> None:
    paper = {"tokens": 20480, "mean_tokens": 4000, "batch": 32, "context_parallel": 2}
    qwen = SHAPES["qwen3-14b"]
    assert plan(Setup(qwen, gpus=8, sharding=Sharding.FSDP2, **paper)).fits  # type: ignore[arg-type]
    assert not plan(Setup(qwen, gpus=8, sharding=Sharding.DDP, **paper)).fits  # type: ignore[arg-type]
    assert plan(setup(shape=SHAPES["qwen3-0.6b"], gpus=1)).fits


def test_conversations_by_hand() -> None:
    # (10 GiB * 0.92 - 2e9) / (4 * 10 * 100 * 1000 bytes)
    assert conversations(ROUND, 1000, 1, 10.0) == int((10 * GIB * 0.92 - 2e9) // 4e6)
    assert conversations(SHAPES["qwen3-32b"], 74752, 1, 48.0) == 0, "not even the weights fit"
