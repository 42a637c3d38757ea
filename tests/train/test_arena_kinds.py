"""Stage rl trains on the kinds of arenas that it is told, and on no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from pydantic import ValidationError
from training_world import make_arena

from astra.records.environment import Arena
from astra.records.qa import QuestionKind, Split
from astra.rollout.chat import PolicyConfig, load_codec
from astra.train.errors import TrainingError
from astra.train.rl import Arenas, choose_arenas
from configs import CONF, rl_config


@pytest.fixture
def arenas() -> list[Arena]:
    """Two read-only, two that write and one of code for training, and one of each to watch it."""
    kinds = ["read_only", "read_only", "write", "write", "code"]
    train = [(kind, Split.TRAIN) for kind in kinds]
    dev = [(kind, Split.DEV) for kind in ("read_only", "write", "code")]
    return [
        make_arena(seed, split).model_copy(update={"kind": QuestionKind(kind)})
        for seed, (kind, split) in enumerate([*train, *dev])
    ]


def chosen(arenas: list[Arena], folder: Path, **changes: Any) -> Arenas:
    codec = load_codec(PolicyConfig.saved("policies/tiny", "float32"))
    return choose_arenas(arenas, codec, rl_config(**changes), folder / "run")


@pytest.mark.parametrize(
    ("kinds", "train"),
    [(None, 5), (["read_only"], 2), (["code"], 1), (["write", "code"], 3)],
)
def test_arenas_of_other_kinds_neither_train_nor_watch(
    kinds: list[str] | None, train: int, arenas: list[Arena], tmp_path: Path
) -> None:
    found = chosen(arenas, tmp_path, kinds=kinds)
    wanted = set(kinds or ["read_only", "write", "code"])
    assert len(found.train) == train
    assert {arena.kind.value for arena in found.train} == wanted
    assert {arena.kind.value for arena in found.dev} == wanted
    assert found.rejections == []


def test_dev_arenas_are_counted_among_the_chosen_kinds(arenas: list[Arena], tmp_path: Path) -> None:
    found = chosen(arenas, tmp_path, kinds=["code"], dev_arenas=1)
    assert [arena.kind for arena in found.dev] == [QuestionKind.CODE]


def test_a_prompt_that_does_not_fit_neither_trains_nor_watches(
    arenas: list[Arena], tmp_path: Path
) -> None:
    long = {arenas[0].id, arenas[-1].id}
    asked = [
        one.model_copy(update={"main_question": "long " * 30_000}) if one.id in long else one
        for one in arenas
    ]
    found = chosen(asked, tmp_path)
    assert {(one.item, one.reason) for one in found.rejections} == {
        (id, "prompt_too_long") for id in long
    }
    assert (len(found.train), len(found.dev)) == (4, 2)


def test_kinds_that_no_arena_has_are_named_with_those_there_are(
    arenas: list[Arena], tmp_path: Path
) -> None:
    with pytest.raises(TrainingError) as error:
        chosen(arenas, tmp_path, kinds=["infeasible", "mixed"])
    assert str(error.value).startswith(
        "envs_merged has no training arena of rl.kinds [infeasible, mixed], but code 1, "
        "read_only 2, write 2; choose among these"
    )


def test_without_any_training_arena_kinds_are_not_to_blame(
    arenas: list[Arena], tmp_path: Path
) -> None:
    with pytest.raises(TrainingError, match="no training arena that fits"):
        chosen(arenas[5:], tmp_path, kinds=["code"])


@pytest.mark.parametrize("kinds", [["coding"], []])
def test_unknown_kinds_and_none_at_all_are_refused(kinds: list[str]) -> None:
    with pytest.raises(ValidationError, match="kinds"):
        rl_config(kinds=kinds)


def test_rstar2_trains_on_code_alone_and_astra_on_no_code() -> None:
    with initialize_config_dir(str(CONF), version_base=None):
        assert compose("config", ["scale=full", "rl=rstar2"]).rl.kinds == ["code"]
        assert compose("config", ["scale=full"]).rl.kinds is None
