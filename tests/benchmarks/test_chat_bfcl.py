"""What the chat model's policies play of BFCL, and what is told of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import chat_bfcl

from astra.bench.suite_tables import write_run
from astra.records.bench import SuiteEpisode, SuiteOutcome, SuiteRun
from astra.records.score import Scored

CATEGORIES = ("irrelevance", "multiple", "parallel", "simple_python")


def episode(name: str, category: str, at: int, value: float) -> SuiteEpisode:
    return SuiteEpisode(
        suite="bfcl_single", checkpoint=name, entry_id=f"{category}_{at}", category=category,
        attempt=0, outcome=SuiteOutcome.SCORED, scores={"accuracy": Scored(value=value)},
        reason="", steps=1, prompt_tokens=10, completion_tokens=5, messages=(),
    )  # fmt: skip


def write(out: Path, name: str, values: dict[str, list[float]]) -> None:
    run = SuiteRun(
        suite="bfcl_single", checkpoint=name, model=name, harness="bfcl_single", score="accuracy",
        versions={}, sample_count=12, sample_of=1040, sample_seed=0, tries=1, decoding={},
        options={"mode": "fc"}, outcomes={"scored": 12},
    )  # fmt: skip
    episodes = [
        episode(name, category, at, value)
        for category, found in values.items()
        for at, value in enumerate(found)
    ]
    # A table's rows stand in another order for each policy.
    write_run(out, run, episodes if name == "base" else episodes[::-1])


@pytest.fixture
def told(tmp_path: Path) -> dict[str, Any]:
    silent = {one: [float(one == "irrelevance")] * 3 for one in CATEGORIES}
    write(tmp_path, "floor", silent)
    write(tmp_path, "base", silent)
    write(tmp_path, "sft", silent | {"irrelevance": [1.0, 0.0, 0.0], "simple_python": [1.0] * 3})
    chat_bfcl.add_cpu(tmp_path / "cpu.json", "sft", 2.2)
    chat_bfcl.add_cpu(tmp_path / "cpu.json", "sft", 3.0)
    return chat_bfcl.document(tmp_path)


def test_silence_has_a_balance_of_one_half_without_doubt(told: dict[str, Any]) -> None:
    base, sft = told["bfcl_single"]["base"], told["bfcl_single"]["sft"]
    assert base["balance"] == [0.5, 0.5, 0.5, 3]
    assert base["all"] == [0.25, 0.25, 0.25, 3]
    assert base["over floor"]["balance"] == [0.0, 0.0, 0.0, 3]
    assert sft["irrelevance"][0] == 0.333
    assert sft["balance"][0] == 0.667
    assert told["cpu_s"] == {"sft": 5}


def test_differences_are_of_the_same_entries(
    told: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    over = told["bfcl_single"]["sft"]["over base"]
    assert over["simple_python"] == [1.0, 1.0, 1.0, 3]
    assert over["irrelevance"][0] == -0.667
    assert over["balance"][0] == 0.167
    assert over["multiple"] == [0.0, 0.0, 0.0, 3]
    assert "over base_native" not in told["bfcl_single"]["sft"]
    chat_bfcl.show(told)
    said = capsys.readouterr().out
    assert "| simple_python | 0.000 [0.000, 0.000] | 0.000 [0.000, 0.000] | 1.000" in said
    assert "sft over base: irrelevance -0.667" in said


def test_rows_that_were_played_before_stay(told: dict[str, Any]) -> None:
    assert chat_bfcl.with_kept({}, told) == told
    suites = {
        "bfcl_single": {"floor": {"entries": 12}, "rl": {"entries": 12}, "sft": {}},
        "bfcl": {"sft": {"entries": 40}},
    }
    found = chat_bfcl.with_kept({"cpu_s": {"rl": 7, "sft": 9}, **suites}, told)
    assert found["cpu_s"] == {"rl": 7, "sft": 5}
    assert found["bfcl_single"] == {"rl": {"entries": 12}, **told["bfcl_single"]}
    assert found["bfcl"] == suites["bfcl"]
    other = {"cpu_s": {}, "bfcl_single": {"floor": {"entries": 600}, "rl": {}}}
    assert chat_bfcl.with_kept(other, told)["bfcl_single"] == told["bfcl_single"]


def test_each_row_is_prompted_in_its_way() -> None:
    played = {
        name: list(chat_bfcl.suites(name, 150, 40))
        for name in ("base", "base_native", "sft", "calls")
    }
    assert [one.name for one in played["sft"]] == ["bfcl_single", "bfcl"]
    assert [one.name for one in played["calls"]] == ["bfcl_single"]
    assert {one.options["mode"] for one in played["base"]} == {"fc"}
    assert {one.options["mode"] for one in played["base_native"]} == {"prompt"}
    assert [one.sample.per_category for one in played["sft"]] == [150, None]
    assert {one.decoding.temperature for one in played["sft"]} == {0.0}
    assert [one.name for one in chat_bfcl.suites("sft", 3, 0)] == ["bfcl_single"]
