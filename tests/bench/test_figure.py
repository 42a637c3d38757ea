"""The picture of the scores: drawn from the document alone, the same bytes every time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from astra.bench.figure import SHOWN, draw_scores
from astra.cli.scores import ScoresError, draw_figure


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    def checkpoint(mean: float) -> dict[str, Any]:
        interval = {"mean": mean, "low": mean - 0.05, "high": mean + 0.05, "n": 9}
        part = {"single_hop": {"n": 4, "f1": mean}, "multi_hop": {"n": 5, "f1": mean / 2}}
        return {
            "scores": dict.fromkeys(SHOWN, interval),
            "by_scenario": part,
            "by_hops": {"1": {"n": 9, "f1": mean}},
        }

    document = {
        "arenas": 9,
        "suite": "held-out arenas",
        "checkpoints": {"base": checkpoint(0.1), "sft": checkpoint(0.3), "rl": checkpoint(0.4)},
    }
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_the_same_scores_give_the_same_bytes(metrics: Path, tmp_path: Path) -> None:
    first, again = tmp_path / "a.svg", tmp_path / "b.svg"
    draw_scores(metrics, first)
    draw_scores(metrics, again)
    assert first.read_bytes() == again.read_bytes()
    assert first.read_text(encoding="utf-8").startswith("<?xml")


def test_other_scores_give_another_picture(metrics: Path, tmp_path: Path) -> None:
    first, other = tmp_path / "a.svg", tmp_path / "b.svg"
    draw_scores(metrics, first)
    document = json.loads(metrics.read_text(encoding="utf-8"))
    document["checkpoints"]["rl"]["by_hops"]["1"]["f1"] = 0.9
    metrics.write_text(json.dumps(document), encoding="utf-8")
    draw_scores(metrics, other)
    assert first.read_bytes() != other.read_bytes()


def test_what_cannot_be_drawn_says_why(metrics: Path, tmp_path: Path) -> None:
    with pytest.raises(ScoresError, match="dvc repro bench"):
        draw_figure(tmp_path / "absent.json", tmp_path / "a.svg")
    with pytest.raises(ScoresError, match=r"a\.tex.*not supported"):
        draw_figure(metrics, tmp_path / "a.tex")
    metrics.write_text("{}", encoding="utf-8")
    with pytest.raises(ScoresError, match="cannot draw"):
        draw_figure(metrics, tmp_path / "a.svg")
