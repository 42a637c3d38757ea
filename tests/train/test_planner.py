"""The planner's formulas against hand-worked numbers."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from astra.cli.train import train_app
from astra.train.launch import Sharding
from astra.train.planner import GIB, SHAPES, ModelShape, Setup, conversations, own_head, plan

ROUND = ModelShape(1000, 10, 1000, 100, 3000, 10_000, tied=True)
LAYER = 1000 * (2 * 1000 + 2 * 100 + 3 * 3000)
ALL = 10 * LAYER + 10_000 * 1000


def setup(**options: object) -> Setup:
    settings = {"shape": ROUND, "tokens": 1000, "mean_tokens": 500, "batch": 32, "gpus": 8}
    return Setup(**(settings | options))  # type: ignore[arg-type]


def test_memory_by_hand() -> None:
    made = plan(setup(sharding=Sharding.ZERO3)).memory
    assert ROUND.parameters == ALL == 122_000_000
    assert (made["weights"], made["gradients"], made["optimizer"]) == (
        2 * ALL / 8, 2 * ALL / 8, 12 * ALL / 8,
    )  # fmt: skip
    assert made["buffers"] == 2 * ALL, "fewer weights than it may gather"
    # checkpointed: 2 bytes of 1000 tokens x 1000 wide x 10 layers
    assert made["activations"] == 2e7
    # one layer again 1000 x (16 x 1000 + 10 x 1100 + 8 x 3000); the head's tile 2 x 1000 x 32768
    # and its gradient 4 x 10,000 x 1000 are more; the ends 20 x 1000 x 1000
    assert made["working"] == 2e7 + max(51e6, 2 * 1000 * 32768 + 4e7)
    held = plan(setup(checkpointing=False)).memory["activations"]
    assert held == 10 * 51e6


def test_float32_weights_on_one_gpu_by_hand() -> None:
    made = plan(setup(sharding=Sharding.DDP, gpus=1, checkpointing=False)).memory
    assert (made["weights"], made["gradients"], made["optimizer"]) == (4 * ALL, 4 * ALL, 8 * ALL)
    assert made["buffers"] == 0
    assert made["activations"] == 10 * 1000 * (26 * 1000 + 10 * 1100 + 8 * 3000)
    # the ends, bfloat16 copies of the linear maps, logits of 400 tokens
    assert made["working"] == 3e7 + 2 * 10 * LAYER + 16 * 400 * 10_000


@pytest.mark.parametrize(
    ("sharding", "weights", "gradients", "optimizer"),
    [("ddp", 4, 4, 8), ("zero2", 2, 2 / 8, 12 / 8), ("fsdp2", 4 / 8, 4 / 8, 8 / 8)],
)
def test_what_each_way_of_sharding_spreads(
    sharding: str, weights: float, gradients: float, optimizer: float
) -> None:
    made = plan(setup(sharding=Sharding(sharding))).memory
    assert (made["weights"], made["gradients"], made["optimizer"]) == (
        weights * ALL, gradients * ALL, optimizer * ALL,
    )  # fmt: skip


def test_time_by_hand() -> None:
    made = plan(setup(gpu_tflops=100.0, utilisation=0.5))
    # 8 * 122e6 * 32 * 500 FLOP over 8 * 50e12 a second
    assert made.step_s == pytest.approx(0.03904)
    assert made.tokens_per_s == pytest.approx(409_836, rel=1e-5)
    assert made.accumulation == 4


def test_context_parallel_splits_the_sequence_and_lora_the_state() -> None:
    whole, halved = plan(setup()).memory, plan(setup(context_parallel=2)).memory
    assert halved["activations"] == whole["activations"] / 2
    light = plan(setup(lora_rank=16)).memory
    assert light["weights"] == pytest.approx(2 * ALL, rel=0.1)
    assert light["optimizer"] < plan(setup(sharding=Sharding.DDP)).memory["optimizer"] / 30


def test_the_head_is_ours_while_its_logits_are_few() -> None:
    alone = {"sharding": Sharding.DDP, "gpus": 1}
    assert own_head(setup(**alone))
    assert not own_head(setup(**alone, stage="rl"))
    assert not own_head(setup(**alone, tokens=20_000)), "16 x 8000 x 10,000 bytes are over 1 GiB"
    assert not own_head(setup(sharding=Sharding.DDP)), "several GPUs wrap the model"


def test_no_logits_of_a_long_conversation_are_ever_held() -> None:
    """75k tokens of Qwen3's vocabulary would be 68 GB of them."""
    made = plan(Setup(SHAPES["qwen3-14b"], 74752, 8000, 256, 32, stage="rl"))
    assert made.memory["working"] < 40 * GIB
    assert made.fits


def test_a_mask_costs_the_square_of_the_length_where_rows_are_padded() -> None:
    one, two = (plan(setup(micro_batch=rows)).memory["working"] for rows in (1, 2))
    assert two - one >= 2 * 1000**2


def test_uneven_setups_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of context_parallel"):
        plan(setup(context_parallel=3))
    with pytest.raises(ValueError, match="no multiple of 8 replicas"):
        plan(setup(batch=30))


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("smollm2-135m", 0.1345), ("qwen2.5-0.5b", 0.494), ("llama3.2-1b", 1.236),
        ("qwen3-0.6b", 0.596), ("qwen3-1.7b", 1.72), ("qwen3-4b", 4.02), ("qwen3-8b", 8.19),
        ("qwen3-14b", 14.77), ("qwen3-32b", 32.76),
    ],
)  # fmt: skip
def test_shapes_have_the_published_number_of_weights(name: str, billions: float) -> None:
    assert SHAPES[name].parameters / 1e9 == pytest.approx(billions, rel=0.005)


def test_what_is_known_to_fit_fits_and_what_is_known_not_to_does_not() -> None:
    paper = {"tokens": 20480, "mean_tokens": 4000, "batch": 32, "context_parallel": 2}
    qwen = SHAPES["qwen3-14b"]
    assert plan(Setup(qwen, gpus=8, sharding=Sharding.FSDP2, **paper)).fits  # type: ignore[arg-type]
    assert not plan(Setup(qwen, gpus=8, sharding=Sharding.DDP, **paper)).fits  # type: ignore[arg-type]
    assert plan(setup(shape=SHAPES["qwen3-0.6b"], gpus=1, sharding=Sharding.DDP)).fits


def test_conversations_by_hand() -> None:
    # (10 GiB * 0.92 - 2 * 122e6) / (4 * 10 * 100 * 1000 bytes)
    assert conversations(ROUND, 1000, 1, 10.0) == int((10 * GIB * 0.92 - 2 * ALL) // 4e6)
    assert conversations(SHAPES["qwen3-32b"], 74752, 1, 48.0) == 0, "not even the weights fit"


def test_the_table_of_the_page_is_the_planners(root: Path) -> None:
    page = (root / "docs" / "training.md").read_text()
    rows = re.findall(r"^\| `(\S+ --tokens [^`]+)` \| ([\d.]+) \| (yes|no) \|$", page, re.M)
    assert len(rows) == 10
    for words, gib, fits in rows:
        done = CliRunner().invoke(train_app, ["plan", *shlex.split(words)])
        total = re.search(r"^total +([\d.]+) GiB", done.output, re.M)
        assert total, done.output
        found = (f"{float(total[1]):.1f}", "yes" if done.exit_code == 0 else "no")
        assert found == (gib, fits), words
