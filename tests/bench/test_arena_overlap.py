"""What the arenas share with external suites, and the lines that a long run writes."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from test_bench_arenas import make_arena

from astra import stage as progressing
from astra.bench.arena_overlap import shared_with_suites
from astra.bench.progress import BenchProgress
from astra.contamination.index import ContaminationConfig, ContaminationIndex
from astra.contamination.suites import SuiteTexts
from astra.records.qa import Split
from astra.rollout.engine import FakeEngine, Sampling


def test_overlap_counts_arenas_by_split_suite_and_kind(tmp_path: Path) -> None:
    arenas = [make_arena(n) for n in range(4)] + [make_arena(9, split=Split.TRAIN)]
    twin = SuiteTexts("twin", texts={arenas[0].main_question})
    tools = SuiteTexts("tools", tools=[("getPrice", {})])
    path = tmp_path / "index.parquet"
    for suites, expected in (
        ([], {}),
        ([twin], {"text of twin": 1}),
        ([tools], {"names of tools": 4}),
        ([twin, tools], {"text of twin": 1, "names of tools": 3}),
    ):
        ContaminationIndex.of(suites).save(path)
        config = ContaminationConfig(index=str(path), tool_names=0.5, schemas=0.25)
        found = shared_with_suites(arenas, config)
        assert found["heldout"] == {"arenas": 4, **expected}
        assert found["suites"] == sorted(suite.name for suite in suites)
        assert found["train"]["arenas"] == 1
    assert shared_with_suites(arenas, None) == {}


def test_progress_counts_the_episodes_that_engines_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progressing, "REPORT_EVERY_S", 0.0)
    caplog.set_level(logging.INFO, "astra")
    progress = BenchProgress("episodes", 2, 2)
    for name in ("base", "sft"):
        engine = progress.watch(name, FakeEngine(lambda prompt, turn: [7], eos_id=9))
        engine.start([[1], [2]], [4, 4], Sampling())
        for turn in engine.poll():
            engine.finish(turn.row)
        engine.finish(0)  # rolled again
        progress.played(name, ())
    progress.close()
    said = [line.split(",")[0] for line in caplog.messages]
    assert said[:4] == ["episodes 1/4", "episodes 2/4", "episodes 3/4", "episodes 2/4"]
    assert said[-1] == "episodes 4/4"
    assert caplog.messages[0].endswith("base")
