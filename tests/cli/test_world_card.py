"""The data card of the worlds counts what the tables hold, and refuses goals that do not hold."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from astra.arena.world_scripts import WorldScript
from astra.arena.world_table import read_arenas
from astra.arena.worlds import goal_of
from astra.cli.arena_card import CardError
from astra.cli.world_card import reached_goals, world_card
from astra.records.world import OutcomeKind
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from world_goals import worlds_and_goals, write_tables


def test_the_card_counts_goals_and_floors(tmp_path: Path) -> None:
    world, _ = worlds_and_goals()
    arenas = list(read_arenas(write_tables(tmp_path)))
    with LocalSandbox(SandboxLimits(cpu_s=60)) as sandbox:
        reached = reached_goals(arenas, sandbox)
        text = world_card([world], arenas, reached)
        assert text == world_card([world], arenas, reached_goals(arenas, sandbox))
    total = len(arenas)
    assert reached[world.split, WorldScript.REFERENCE] == [True] * total
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line[:1] == "|"}
    assert f"| 100.0 % of {total} | - | - |" in rows["reference"]
    assert f"| 0.0 % of {total} | - | - |" in rows["mute"]
    users = sum(goal_of(arena).needs_user for arena in arenas)
    assert f"| {100 * users / total:.1f} % of {total} |" in rows["need a user who talks"]
    assert f"| train | 1 | {len(world.tables)} |" in rows["tool rental"]
    assert f"| {len(world.policy.split())} | {total} |" in rows["tool rental"]


def test_a_goal_that_its_own_trace_misses_stops_the_card(tmp_path: Path) -> None:
    arenas = list(read_arenas(write_tables(tmp_path)))
    wrong = next(one for one in arenas if goal_of(one).outcome.kind == OutcomeKind.DECLINED)
    goal = goal_of(wrong)
    other = goal.outcome.model_copy(update={"reason": "no_such_code"})
    text = goal.model_copy(update={"outcome": other}).model_dump_json()
    broken = wrong.model_copy(update={"goal": text})
    with (
        LocalSandbox(SandboxLimits(cpu_s=60)) as sandbox,
        pytest.raises(CardError, match=f"{broken.id}.*outcome_wrong:declined"),
    ):
        reached_goals([broken], sandbox)


def test_the_committed_card_is_of_the_committed_metrics(root: Path) -> None:
    text = (root / "docs/data-cards/worlds.md").read_text("utf-8")
    counts = json.loads((root / "metrics/goals.json").read_text("utf-8"))
    goals = [counts[f"out_{split}"] for split in ("train", "dev", "heldout")]
    row = "| goals | {} | {} | {} |".format(*goals)
    assert row in text, "run `python -m astra.cli.world_card`"
    (users,) = (line for line in text.splitlines() if line.startswith("| need a user who talks"))
    shares = [float(share) for share in re.findall(r"([\d.]+) % of", users)]
    needing = sum(round(share * many / 100) for share, many in zip(shares, goals, strict=True))
    assert needing == counts["needs_user"], "run `python -m astra.cli.world_card`"
