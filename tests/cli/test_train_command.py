"""``astra train``: the planner's command and the ablation queue."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from astra.cli.ablations import experiments, finished, read_grid, rows
from astra.cli.train import train_app
from astra.devtools import params
from astra.errors import AstraError


@pytest.fixture(autouse=True)
def _at_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


def test_plan_says_what_fits_and_what_does_not() -> None:
    fits = CliRunner().invoke(train_app, ["plan", "qwen3-14b", "--sharding", "fsdp2"])
    assert fits.exit_code == 0, fits.output
    assert "fits" in fits.output
    assert "optimizer" in fits.output
    too_much = CliRunner().invoke(train_app, ["plan", "qwen3-32b", "--sharding", "ddp"])
    assert too_much.exit_code == 1
    assert "does not fit" in too_much.output
    unknown = CliRunner().invoke(train_app, ["plan", "gpt-9"])
    assert isinstance(unknown.exception, AstraError)
    uneven = CliRunner().invoke(train_app, ["plan", "tiny", "--gpus", "3", "--batch", "8"])
    assert isinstance(uneven.exception, AstraError)


def test_the_grid_is_one_factor_at_a_time_with_every_seed(tmp_path: Path) -> None:
    made = list(experiments(read_grid(Path("conf/experiments/ablations.yaml"))))
    assert len({one.name for one in made}) == len(made) == 24
    changed = {one.variant: one.overrides[:-1] for one in made}
    assert changed["default"] == ()
    assert changed["reward-recall"] == ("rl.reward=recall",)
    assert all(len(overrides) <= 1 for overrides in changed.values())
    assert {one.overrides[-1] for one in made} == {f"rl.seed={seed}" for seed in range(3)}
    for overrides in changed.values():
        params.compose(tmp_path / "params.yaml", list(overrides))


def test_queue_dry_prints_the_commands() -> None:
    done = CliRunner().invoke(train_app, ["ablations", "queue", "--dry"])
    assert done.exit_code == 0, done.output
    assert (
        "dvc exp run --queue --name ablation-roc-sample-s2 -S rl.roc.mode=sample -S rl.seed=2"
        in done.output
    )


@pytest.mark.parametrize("command", ["queue", "table"])
def test_without_dvc_on_the_path_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    error = CliRunner().invoke(train_app, ["ablations", command]).exception
    assert isinstance(error, AstraError)
    assert "dvc is not on PATH; activate the environment (`. .venv/bin/activate`)" in str(error)


@pytest.mark.parametrize("command", ["queue", "table"])
def test_what_dvc_refuses_is_told_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    dvc = tmp_path / "dvc"
    dvc.write_text("#!/bin/sh\necho no such parameter >&2\nexit 1\n")
    dvc.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = CliRunner().invoke(train_app, ["ablations", command])
    assert isinstance(done.exception, AstraError), done.output
    assert "no such parameter" in str(done.exception)
    assert ("--name ablation-default-s0" in str(done.exception)) == (command == "queue")


def test_the_table_shows_what_has_finished_and_what_has_not() -> None:
    def entry(name: str, value: float) -> dict[str, object]:
        scores = {"f1": {"mean": value}, "calls": {"mean": 2.0}}
        bench = {"data": {"checkpoints": {"rl": {"scores": scores}}}}
        return {"name": name, "data": {"metrics": {"metrics/bench.json": bench}}}

    document = [
        {"rev": "workspace", "name": None, "data": {"metrics": {}}},
        {"experiments": [{"revs": [entry("ablation-default-s0", 0.2)]},
                         {"revs": [entry("ablation-default-s1", 0.4)]}]},
    ]  # fmt: skip
    scores = finished(json.loads(json.dumps(document)))
    planned = list(experiments(read_grid(Path("conf/experiments/ablations.yaml"))))
    lines = list(rows(planned, scores))
    assert lines[2] == "| default | 2/3 | 0.300 ± 0.141 | – | – | – | – | 2.000 ± 0.000 |"
    assert lines[3].startswith("| reward-recall | 0/3 | –")


def test_a_file_that_is_no_grid_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text("factors: 3")
    with pytest.raises(AstraError, match="no grid"):
        read_grid(path)


def test_paper_and_rstar2_settings_compose(tmp_path: Path) -> None:
    import yaml

    path = tmp_path / "params.yaml"
    params.compose(path, ["scale=full", "policy=qwen3_32b", "sft=full_32b", "rl=rstar2"])
    made = yaml.safe_load(path.read_text())
    assert (made["sft"]["learning_rate"], made["sft"]["context_parallel"]) == (2e-6, 4)
    assert sum(phase["steps"] for phase in made["rl"]["schedule"]) == 510
    assert (made["rl"]["groups"], made["rl"]["group_size"]) == (512, 16)
    params.compose(path, ["scale=full", "policy=qwen3_14b", "sft=rstar2"])
    made = yaml.safe_load(path.read_text())
    assert (made["sft"]["batch_size"], made["sft"]["warmup_share"]) == (128, 0.04)
    assert made["rl"]["limits"]["max_response_tokens"] == 49152
