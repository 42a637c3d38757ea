"""Verdicts on claims follow from scores and curves made by hand, and so does the page."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from ablation_report import (
    CLAIMS,
    DEFAULT,
    START,
    Claim,
    Outcome,
    Played,
    command,
    document,
    draw_curves,
    judge,
    render,
    verdict,
)
from scores import SCORES
from staged import ROOT

from astra.cli.ablations import GRID, experiments, read_grid

SETTINGS = {"steps": 4, "groups": 8, "group_size": 8, "arenas": 25, "played": 20,
            "split": "heldout", "scale": "smoke", "inputs": ["a", "b"],
            "overrides": ["runtime.rl_launch=''", "rl.groups=4"]}  # fmt: skip


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
    assert verdict("more", -0.1, 0.3, [0.1, 0.1]) == "not clear"
    assert verdict("more", -0.3, -0.1, [-0.2, -0.2]) == "disagrees"
    assert verdict("more", -0.3, -0.1, [-0.5, 0.1]) == "disagrees, not with every seed"
    assert verdict("less", -0.3, -0.1, [-0.2, -0.2]) == "agrees"
    assert verdict("less", 0.1, 0.3, [0.2, 0.2]) == "disagrees"
    assert verdict("less", -0.3, 0.1, [-0.1, -0.1]) == "not clear"


def test_a_score_is_kept_where_the_interval_leaves_out_more_than_the_margin() -> None:
    assert verdict("not less", -0.01, 0.1, [0.1, -0.01]) == "agrees"
    assert verdict("not less", -0.015, -0.005, [-0.01, -0.01]) == "agrees"
    assert verdict("not less", -0.01, 0.1, [0.2, -0.1]) == "agrees, not with every seed"
    assert verdict("not less", -0.1, 0.1, [0.0, 0.0]) == "not clear", "too wide to tell"
    assert verdict("not less", -0.3, -0.1, [-0.2, -0.2]) == "disagrees"


def test_a_verdict_says_where_there_is_one_seed() -> None:
    assert verdict("more", 0.1, 0.3, [0.2]) == "agrees, one seed"
    assert verdict("less", 0.1, 0.3, [0.2]) == "disagrees, one seed"
    assert verdict("more", -0.1, 0.3, [0.1]) == "not clear"


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
    assert made["verdict"] == "disagrees, not with every seed"


def test_curves_count_from_the_middle_of_training_on() -> None:
    on, off = outcome(3.0, signal=6.0), outcome(3.0, signal=4.0)
    early = {step: (0.0 if step < 4 else 6.0) for step in range(8)}
    on = Outcome(on.played, {"filling_informative": early}, on.seconds)
    found = {DEFAULT: {0: on}, "filling-off": {0: off}}
    made = judge(claim(DEFAULT, "filling-off", "filling_informative"), found, on.played)
    assert made is not None
    assert (made["mean"], made["items"], made["verdict"]) == (2.0, 4, "agrees, one seed")
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
    assert rows["filling raises the groups with signal per step"].endswith(
        "| **agrees, one seed** |"
    )
    assert "random distractors beat none" not in page, "arms that were not run are not judged"
    assert "- **disagrees** (1 of 6 of the paper's claims): precision alone starves calls." in page
    assert "| reward-recall | 2 | 0.219 ± 0.000 |" in page
    assert "lies above −0.02." in page
    assert "then 20 held-out arenas" in page
    assert all(f"ablations/{path.name}" in page for path in figures)
    first = figures[0].read_bytes()
    assert draw_curves(made, tmp_path)[0].read_bytes() == first


def test_the_page_quotes_the_whole_command() -> None:
    made = whole()
    quoted = render(made, []).split("```sh\n")[1].split("\n```")[0]
    assert quoted == command(SETTINGS, made["arms"])
    assert shlex.split(quoted) == [
        "python", "benchmarks/ablations.py", "--steps", "4", "--seeds", "0", "1",
        "--arenas", "25", "--split", "heldout",
        "--arms", "default", "reward-recall", "reward-precision", "filling-off",
        "--set", "runtime.rl_launch=''", "rl.groups=4",
    ]  # fmt: skip
    grid = {one.variant: {"seeds": {"0": {}}} for one in experiments(read_grid(ROOT / GRID))}
    assert command({**SETTINGS, "overrides": []}, grid).endswith("--split heldout")


def test_more_than_another_arm_may_be_less_than_before() -> None:
    """And the page then says so wherever it names the claim."""
    found = {DEFAULT: {0: outcome(3.0, 0.3)}, "final_answer-ignore": {0: outcome(3.0, 0.2)}}
    overrides = {arm: [] for arm in found}
    page = render(document(found, played(3.0, 0.4), SETTINGS, overrides), [])
    said = "makes more of them right (both are below before RL: 0.319 and 0.219, before 0.419)"
    assert page.count(said) == 2
    assert "F1 with answer -0.100; success -0.100; answer -0.100." in page
    page = render(document(found, played(3.0, 0.2), SETTINGS, overrides), [])
    assert "both are below" not in page


def test_verdicts_are_summed_up_as_they_are() -> None:
    made = whole()
    made["claims"] = [
        {**made["claims"][0], "says": says, "source": "ours", "verdict": found}
        for says, found in (("a", "agrees"), ("b", "agrees, not with every seed"), ("c", "agrees"))
    ]
    page = render(made, [])
    assert "- **agrees** (2 of 3 of the other claims): a; c." in page
    assert "- **agrees, not with every seed** (1 of 3 of the other claims): b." in page


def test_the_committed_page_is_the_committed_document(root: Path) -> None:
    made = json.loads((root / "docs/ablations.json").read_text("utf-8"))
    page = (root / "docs/ablations.md").read_text("utf-8")
    figures = re.findall(r"\(ablations/([\w-]+\.svg)\)", page)
    assert page == render(made, figures)
    assert [one["says"] for one in made["claims"]] == [one.says for one in CLAIMS]
    assert sorted(figures) == sorted(path.name for path in (root / "docs/ablations").glob("*.svg"))


def test_every_claim_names_arms_of_the_grid(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    arms = {one.variant for one in experiments(read_grid(GRID))} | {START}
    assert {one.arm for one in CLAIMS} | {one.other for one in CLAIMS} <= arms
