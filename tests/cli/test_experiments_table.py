"""``astra experiments`` shows a score only where the experiment made it."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from astra.cli import experiments
from astra.cli.experiments import ExperimentRow, shown, table, whole
from astra.cli.main import commands
from astra.errors import AstraError

PARAMS = {"sft": {"steps": 4}, "rl": {"seed": 0}, "bench": {"arenas": 8}}
ORDER = ("sft", "rl", "bench")


def lock() -> dict[str, Any]:
    """Three stages, each made from what the one before it made."""
    return {
        "stages": {
            name: {
                "deps": [{"path": before, "md5": f"hash of {before}"}, {"path": "src", "md5": "c"}],
                "params": {"params.yaml": {name: PARAMS[name]}},
                "outs": [{"path": name, "md5": f"hash of {name}"}],
            }
            for before, name in zip(("data", *ORDER), ORDER, strict=False)
        }
    }


def test_a_whole_build_has_its_scores() -> None:
    assert whole(lock(), PARAMS, "bench")


@pytest.mark.parametrize("stage", ["sft", "rl"])
def test_a_stage_that_ran_alone_has_none(stage: str) -> None:
    """``dvc exp run -s rl``: the lock file has the new weights, and bench's entry the old ones."""
    alone = lock()
    alone["stages"][stage]["outs"][0]["md5"] = "another hash"
    assert not whole(alone, PARAMS, "bench")
    assert whole(alone, PARAMS, "sft"), "what comes before is untouched"


@pytest.mark.parametrize("block", ORDER)
def test_a_stage_that_did_not_run_with_the_changed_parameters_has_none(block: str) -> None:
    changed = deepcopy(PARAMS)
    changed[block] = {"changed": 1}
    assert not whole(lock(), changed, "bench")


def test_no_lock_no_scores() -> None:
    assert not whole({}, PARAMS, "bench")


def row(name: str, scores: dict[str, float], seed: int, reward: str = "f1") -> ExperimentRow:
    block = {"seed": seed, "reward": reward, "limits": {"turns": 6}}
    return ExperimentRow(name, "", "", scores, shown({"rl": block}))


def test_the_table_has_scores_and_what_differs() -> None:
    rows = [row("workspace", {"f1": 0.25}, 2), row("a", {}, 10, "recall"), row("b", {}, 9)]
    assert table(rows, "") == [
        ["Experiment", "Created", "State", "f1", "rl.seed", "rl.reward"],
        ["workspace", "", "", "0.250", "2", "f1"],
        ["a", "", "", "–", "10", "recall"],
        ["b", "", "", "–", "9", "f1"],
    ]


def test_it_is_sorted_by_value_and_a_wrong_column_is_refused() -> None:
    rows = [row("a", {}, 10), row("b", {}, 9)]
    assert [line[0] for line in table(rows, "rl.seed")[1:]] == ["b", "a"]
    with pytest.raises(AstraError, match=r"no column rl\.sead; there are: .*rl\.seed"):
        table(rows, "rl.sead")


def test_outside_the_repository_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = CliRunner().invoke(commands, ["experiments"]).exception
    assert isinstance(error, AstraError)
    assert f"no dvc.yaml in {tmp_path}; run it in the repository root" in str(error)


def test_without_dvc_or_git_on_the_path_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    error = CliRunner().invoke(commands, ["experiments"]).exception
    assert isinstance(error, AstraError)
    assert "dvc exp show --json --num 1: dvc is not on PATH" in str(error)
    assert "`. .venv/bin/activate`" in str(error)
    with pytest.raises(AstraError, match="git is not on PATH"):  # no row without parameters
        experiments.row({"rev": "0" * 40}, "", frozenset())
