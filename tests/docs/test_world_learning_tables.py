"""The tables of small policies in worlds say what docs/world-learning.json, the report, says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return (root / "docs/worlds.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def report(root: Path) -> dict[str, Any]:
    return json.loads((root / "docs/world-learning.json").read_text(encoding="utf-8"))


def told(estimate: dict[str, float], sign: str = "") -> str:
    mean, low, high = (f"{estimate[name]:{sign}.3f}" for name in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def test_every_arm_is_in_the_table(page: str, report: dict[str, Any]) -> None:
    for arm, greedy in report["success"]["arms"].items():
        cells = [f"`{arm}`"]
        sampled = report["sampled"]["arms"][arm]
        if arm == "start":
            cells += ["", told(greedy), "", told(sampled), ""]
        else:
            cells.append(str(len(report["cpu_s"][arm])))
            for score, own in (("success", greedy), ("sampled", sampled)):
                cells += [told(own), told(report[score]["paired"][f"{arm}-start"], "+")]
        assert f"| {' | '.join(cells)} |" in page, arm


def test_every_kind_is_in_the_table(page: str, report: dict[str, Any]) -> None:
    arms = report["success"]["arms"]
    for kind, found in report["success"]["by_kind"].items():
        shares = " | ".join(f"{found[arm]:.3f}" for arm in arms)
        assert f"| `{kind}` | {found['goals']} | {shares} |" in page, kind
