"""The suites benchmark plays again what another setting or model changes, and nothing else."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
import suites
from made_up import add, made_up

from astra.bench.harness.protocol import Subject, SuiteConfig
from astra.bench.harness.scripted import ScriptedServer, ScriptedTurn
from astra.settings import StageConfig


class Options(StageConfig):
    mode: str = "fc"


class Bench:
    """``play`` one model on one suite; ``asked``: how many completions that took."""

    def __init__(self, out: Path) -> None:
        self.out, self.weights, self.broken = out, "weights", False
        self.asked = 0

    def write(self, entry: str, body: dict[str, Any]) -> ScriptedTurn:
        self.asked += 1
        return (
            ScriptedTurn(status=503, error="shutting down")
            if self.broken
            else ScriptedTurn(content="1")
        )

    @contextmanager
    def serving(self, name: str) -> Generator[Subject]:
        with ScriptedServer(self.write, name) as server:
            yield Subject(name, server.endpoint, self.weights)

    def play(self, **fields: Any) -> bool:
        self.asked = 0
        config = SuiteConfig.model_validate({"name": "made_up", **fields})
        return suites.play_all(["sft"], [config], self.serving, self.out)

    def stored(self) -> dict[str, Any]:
        return json.loads((self.out / "made_up/sft.json").read_text())


def test_the_benchmarks_that_a_benchmark_names_are_there(root: Path) -> None:
    for path in sorted((root / "benchmarks").glob("*.py")):
        named = set(re.findall(r"benchmarks/\w+\.py", path.read_text(encoding="utf-8")))
        gone = sorted(one for one in named if not (root / one).is_file())
        assert not gone, f"{path.name} names {', '.join(gone)}"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    (tmp_path / "suites").mkdir()
    add(monkeypatch, tmp_path / "suites", made_up(), Options)
    monkeypatch.setattr("astra.bench.harness.relay.PAUSE_S", 0.01)
    return Bench(tmp_path / "out")


def test_what_is_stored_is_what_was_asked_for(bench: Bench) -> None:
    few = {"sample": {"count": 4}}
    assert bench.play(**few)
    assert (bench.asked, bench.stored()["sample_count"]) == (4, 4)
    assert bench.play(**few)
    assert bench.asked == 0, "the journal has it"
    assert bench.play(sample={"count": 6})
    assert (bench.asked, bench.stored()["sample_count"]) == (2, 6)
    assert bench.play(**few, decoding={"max_tokens": 9})
    assert (bench.asked, bench.stored()["decoding"]["max_tokens"]) == (4, 9)
    assert bench.play(**few, options={"mode": "prompt"})
    assert (bench.asked, bench.stored()["options"]) == (4, {"mode": "prompt"})
    bench.weights = "trained further"
    assert bench.play(**few)
    assert bench.asked == 4


def test_a_run_without_a_score_leaves_none_of_another_setting(bench: Bench) -> None:
    assert bench.play(sample={"count": 4})
    bench.broken = True
    assert not bench.play(sample={"count": 6})
    assert not list((bench.out / "made_up").iterdir())
    bench.broken = False
    assert bench.play(sample={"count": 4})
    assert bench.asked == 0, "the journal has it"
