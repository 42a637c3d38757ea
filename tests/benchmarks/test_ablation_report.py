"""Verdicts on claims follow from scores and curves made by hand, and so does the page."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from ablation_report import (
    CLAIMS,
    DEFAULT,
    SCORES,
    START,
    Claim,
    Outcome,
    Played,
    document,
    draw_curves,
    judge,
    render,
    smoothed,
    verdict,
)

from astra.cli.ablations import GRID, experiments, read_grid

SETTINGS = {"steps": 4, "groups": 8, "group_size": 8, "arenas": 20, "split": "heldout",
            "scale": "smoke", "overrides": [], "inputs": ["a", "b"]}  # fmt: skip


def played(calls: float, f1: float = 0.4) -> Played:
    """Twenty arenas; arena ``k`` scores a little more than arena ``k - 1``."""
    values = dict.fromkeys(SCORES, f1) | {"calls": calls}
    arenas = {
        name: {f"a{at}": value + at / 500 for at in range(20)} for name, value in values.items()
    }
    return {"present": arenas, "absent": arenas}


def outcome(calls: float, f1: float = 0.4, signal: float = 4.0) -> Outcome:
    curves = {name: dict.fromkeys(range(8), signal) for name in ("filling_informative",)}
    curves["train_calls"] = dict.fromkeys(range(8), calls)
    return Outcome(played(calls, f1), curves, {"cpu_s": 60.0, "wall_s": 90.0})


def claim(arm: str, other: str, name: str) -> Claim:
    (found,) = [c for c in CLAIMS if (c.arm, c.other, c.name) == (arm, other, name)]
    return found


def test_verdicts_follow_from_interval_and_seeds() -> None:
    assert verdict("more", 0.1, 0.3, [0.2, 0.2]) == "agrees"
    assert verdict("more", 0.1, 0.3, [0.5, -0.1]) == "agrees, not with every seed"
    assert verdict("more", -0.1, 0.3, [0.2]) == "not clear"
    assert verdict("more", -0.3, -0.1, [-0.2]) == "disagrees"
    assert verdict("less", -0.3, -0.1, [-0.2]) == "agrees"
    assert verdict("less", 0.1, 0.3, [0.2]) == "disagrees"
    assert verdict("less", -0.3, 0.1, [-0.2]) == "not clear"
    assert verdict("not less", -0.1, 0.1, [0.0]) == "agrees"
    assert verdict("not less", -0.1, 0.1, [0.2, -0.1]) == "not clear"
    assert verdict("not less", -0.3, -0.1, [-0.2]) == "disagrees"


def test_a_difference_is_paired_by_arena_and_averaged_over_seeds() -> None:
    found = {
        DEFAULT: {0: outcome(3.0), 1: outcome(3.0)},
        "reward-recall": {0: outcome(5.0), 1: outcome(4.0), 2: outcome(99.0)},
    }
    made = judge(claim("reward-recall", DEFAULT, "calls"), found, played(3.0))
    assert made is not None
    assert made["mean"] == made["low"] == made["high"] == 1.5, "the same in every arena"
    assert made["per_seed"] == [2.0, 1.0], "a seed that only one arm has does not count"
    assert made["items"] == 20
    assert made["verdict"] == "agrees"
    assert judge(claim("reward-precision", DEFAULT, "calls"), found, played(3.0)) is None


def test_the_policy_before_training_is_every_seeds_partner() -> None:
    found = {DEFAULT: {0: outcome(3.0, 0.5), 1: outcome(3.0, 0.3)}}
    made = judge(claim(DEFAULT, START, "f1_plain"), found, played(3.0, 0.45))
    assert made is not None
    assert made["per_seed"] == pytest.approx([0.05, -0.15])
    assert made["verdict"] == "disagrees"


def test_curves_count_from_the_middle_of_training_on() -> None:
    on, off = outcome(3.0, signal=6.0), outcome(3.0, signal=4.0)
    early = {step: (0.0 if step < 4 else 6.0) for step in range(8)}
    on = Outcome(on.played, {"filling_informative": early}, on.seconds)
    found = {DEFAULT: {0: on}, "filling-off": {0: off}}
    made = judge(claim(DEFAULT, "filling-off", "filling_informative"), found, on.played)
    assert made is not None
    assert (made["mean"], made["items"], made["verdict"]) == (2.0, 4, "agrees")
    bare = {DEFAULT: {0: on}, "filling-off": {0: Outcome(off.played, {}, off.seconds)}}
    assert judge(claim(DEFAULT, "filling-off", "filling_informative"), bare, on.played) is None


def whole() -> dict[str, Any]:
    found = {
        DEFAULT: {0: outcome(3.0), 1: outcome(3.2)},
        "reward-recall": {0: outcome(5.0, 0.2), 1: outcome(6.0, 0.2)},
        "reward-precision": {0: outcome(3.1), 1: outcome(3.3)},
        "filling-off": {0: outcome(3.0, signal=2.0)},
    }
    overrides = {arm: [f"rl.{arm}"] for arm in found}
    return document(found, played(3.1), SETTINGS, overrides)


def test_the_page_says_what_the_document_holds(tmp_path: Path) -> None:
    made = json.loads(json.dumps(whole()))
    figures = draw_curves(made, tmp_path)
    assert [path.name for path in figures] == ["reward.svg", "filling.svg"]
    page = render(made, [path.name for path in figures])
    rows = {line.split(" | ")[0].strip("| "): line for line in page.splitlines() if "**" in line}
    assert rows["recall alone inflates calls"].endswith("| **agrees** |")
    assert "+2.400" in rows["recall alone inflates calls"]
    assert rows["precision alone starves calls"].endswith("| **disagrees** |")
    assert rows["filling raises the groups with signal per step"].endswith("| **agrees** |")
    assert "random distractors beat none" not in page, "arms that were not run are not judged"
    assert "disagree: precision alone starves calls" in page
    assert "| reward-recall | 2 | 0.219 ± 0.000 |" in page
    assert "--seeds 0 1`" in page
    assert all(f"ablations/{path.name}" in page for path in figures)
    first = figures[0].read_bytes()
    assert draw_curves(made, tmp_path)[0].read_bytes() == first


def test_every_claim_names_arms_of_the_grid(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    arms = {one.variant for one in experiments(read_grid(GRID))} | {START}
    assert {one.arm for one in CLAIMS} | {one.other for one in CLAIMS} <= arms


def test_smoothing_looks_back_only() -> None:
    assert smoothed([1.0, 2.0, 3.0]) == [1.0, 1.5, 2.0]
    assert smoothed([0.0] * 5 + [5.0]) == [0.0] * 5 + [1.0]
