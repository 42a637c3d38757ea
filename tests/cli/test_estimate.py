"""``astra teacher estimate``: which tables count, what is left out, what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from astra.cli.estimate import Known, current_stages
from astra.cli.main import commands

ONLINE = ("-S", "teacher=openai", "-S", "judge=openai")
ENVIRONMENTS = ("qa", "qa_valid", "envs", "envs_merged")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(commands, ["teacher", "estimate", *arguments])


def rows(output: str) -> dict[str, list[str]]:
    """The cells of the table by stage, of its last role where it asks several."""
    lines = [line.split() for line in output.splitlines() if "runtime." not in line]
    return {cells[0]: cells for cells in lines}


@pytest.fixture
def _at_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


@pytest.mark.usefixtures("_at_root")
def test_rules_cost_nothing() -> None:
    result = run("-S", "scale=test")
    assert result.exit_code == 0, result.output
    assert "nothing is asked of a model" in result.output


@pytest.mark.usefixtures("_at_root")
def test_a_model_is_told_by_stage_and_role_with_prices_and_caps() -> None:
    prices = "runtime.prices={zai-org/GLM-4.6-FP8: {prompt: 1, completion: 1}}"
    capped = ("-S", "runtime.budget.run.money=5", "-S", prices)
    result = run("-S", "scale=test", *ONLINE, *capped, "envs_merged")
    assert result.exit_code == 0, result.output
    table = rows(result.output)
    assert list(table)[1:] == ["tools", *ENVIRONMENTS, "all"], "its other tools come from there"
    assert table["qa"][1:5] == ["teacher", "zai-org/GLM-4.6-FP8", "80", "80"]
    assert table["qa_valid"][1] == "judge"
    assert table["qa_valid"][-1] == "guessed"
    asks = [int(table[stage][3].replace(",", "")) for stage in ("tools", *ENVIRONMENTS)]
    assert sum(asks) == pytest.approx(int(table["all"][1].replace(",", "")), rel=0.01)
    assert "the run 5.0 money; a stage that reaches one stops" in result.output.splitlines()[-1]
    assert "no price" not in result.output


@pytest.mark.usefixtures("_at_root")
def test_a_target_is_told_with_all_that_it_is_made_from() -> None:
    result = run("-S", "scale=test", *ONLINE, "envs")
    assert "no price in runtime.prices: zai-org/GLM-4.6-FP8" in result.output
    assert list(rows(result.output))[1:] == ["qa", "qa_valid", "envs", "all"]
    both = list(rows(run("-S", "scale=test", *ONLINE, "sft_set", "qa").output))
    assert both[1:] == ["tools", "graph", "chains", "tasks", "trajectories", "sft_set", "qa", "all"]
    refused = run("rl", "envs")
    assert refused.exit_code == 1
    assert "no asks of stages ['rl']; there are: tools, graph" in str(refused.exception)


@pytest.mark.usefixtures("_at_root")
@pytest.mark.parametrize(
    ("page", "target"),
    [("README.md", "sft_set"), ("docs/pilot.md", "sft_set"), ("docs/pilot.md", "envs_merged")],
)
def test_the_pages_say_what_the_command_says(root: Path, page: str, target: str) -> None:
    text = " ".join((root / page).read_text("utf-8").split())
    about = r"about ([\d,]+) asks,? with ([\d,]+) prompt tokens and ([\d,]+) completion tokens"
    found = re.findall(about, text)["sft_set envs_merged".split().index(target)]
    told = rows(run("-S", "scale=pilot", target).output)["all"]
    for number, now in zip(found, (told[1], told[3], told[4]), strict=True):
        assert _number(now) == pytest.approx(_number(number), rel=0.15), page


def _number(text: str) -> int:
    return int(text.replace(",", ""))


@pytest.mark.usefixtures("_at_root")
def test_bad_parameters_are_refused() -> None:
    assert "qa.seed" in str(run("-S", "qa.seed=many").exception)
    assert "does not compose" in str(run("-S", "scale=tiny").exception)


def test_without_parameters_the_repair_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "run `make params`" in str(run().exception)


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Tables tools and graph with the lock that they were built under; returns the parameters."""
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = {"tools": {"sources": ["a"]}, "graph": {"samples": 2}}
    stages: dict[str, Any] = {}
    for stage, read in (("tools", "sources"), ("graph", "data/tools.parquet")):
        table = Path(f"data/{stage}.parquet")
        table.parent.mkdir(exist_ok=True)
        table.write_bytes(b"x" * 10)
        stages[stage] = {
            "deps": [{"path": read}, {"path": "src/astra/errors.py"}],
            "params": {"params.yaml": {stage: given[stage]}},
            "outs": [{"path": str(table), "size": 10}],
        }
    Path("dvc.lock").write_text(yaml.safe_dump({"stages": stages}))
    return given


def test_tables_count_that_were_made_with_the_parameters(locked: dict[str, Any]) -> None:
    assert current_stages(locked) == {"tools", "graph"}
    assert current_stages({**locked, "graph": {"samples": 3}}) == {"tools"}
    assert current_stages({"graph": locked["graph"]}) == frozenset()


def test_a_table_does_not_count_if_one_that_it_was_made_from_does_not(
    locked: dict[str, Any],
) -> None:
    assert current_stages({**locked, "tools": {"sources": ["b"]}}) == frozenset()
    Path("data/graph.parquet").write_bytes(b"of something else")
    assert current_stages(locked) == {"tools"}
    Path("data/tools.parquet").unlink()
    assert current_stages(locked) == frozenset()


def test_facts_come_from_tables_that_count_and_else_are_guessed(locked: dict[str, Any]) -> None:
    known = Known(locked, current_stages({**locked, "graph": {"samples": 3}}))
    assert known.facts("tools", lambda table: table.stat().st_size, lambda: -1) == 10
    assert known.facts("graph", lambda table: table.stat().st_size, lambda: -1) == -1


def test_without_a_lock_nothing_is_known(locked: dict[str, Any]) -> None:
    Path("dvc.lock").unlink()
    assert current_stages(locked) == frozenset()
