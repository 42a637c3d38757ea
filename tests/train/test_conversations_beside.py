"""Conversations in worlds beside the SFT set: how many, which ones, and none by default."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from astra.devtools import params
from astra.records.message import Message, MessageRole
from astra.records.trajectory import SFTSample
from astra.train.errors import TrainingError
from astra.train.sft import conversations_beside
from configs import sft_config

SPLITS = ["train"] * 8 + ["eval"] * 6


def conversation(at: int, split: str) -> SFTSample:
    message = Message(role=MessageRole.USER, content=f"{at}")
    return SFTSample(
        trajectory_id=f"{at}.0", split=split, language="en", domain="d", tools=(),
        messages=(message,), scores={}, mean_score=1.0,
    )  # fmt: skip


TOLD = [conversation(at, split) for at, split in enumerate(SPLITS)]


def test_so_many_are_trained_on_and_the_same_share_is_evaluated_on() -> None:
    train, evaluation = conversations_beside(TOLD, 5, train=20, evaluation=8)
    assert len(train) == 5
    assert len(evaluation) == 2
    assert {one.split for one in train} == {"train"}
    assert {one.split for one in evaluation} == {"eval"}


def test_a_larger_number_adds_to_the_same_ones_whatever_their_order() -> None:
    few, _ = conversations_beside(TOLD, 3, 20, 8)
    more, _ = conversations_beside(reversed(TOLD), 6, 20, 8)
    assert more[:3] == few
    everything, _ = conversations_beside(TOLD, 100, 20, 8)
    assert len(everything) == 8


def test_a_table_without_any_is_refused() -> None:
    with pytest.raises(TrainingError, match=r"metrics/conversations\.json"):
        conversations_beside([TOLD[-1]], 5, 20, 8)


def test_sft_depends_on_the_table_only_where_it_reads_it(root: Path, tmp_path: Path) -> None:
    stages = yaml.safe_load((root / "dvc.yaml").read_text())["stages"]
    assert "${sft_conversations}" in stages["sft"]["deps"]
    for overrides, dependency in (
        ([], "stages/sft.py"),
        (["sft.conversations=40"], "data/conversations.parquet"),
    ):
        params.compose(tmp_path / "params.yaml", overrides)
        composed = yaml.safe_load((tmp_path / "params.yaml").read_text())
        assert composed["sft_conversations"] == dependency
    assert sft_config().conversations is None
