"""The report on worlds: what there is, goals played to their verdicts, scores beside floors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from astra.arena.worlds import goal_of
from astra.cli.scores import score_tables
from astra.records.environment import Arena
from astra.records.world import World
from astra.report.page import render
from astra.report.workspace import Workspace
from astra.report.worlds import worlds_view
from astra.store.tables import read_records, write_records
from world_goals import worlds_and_goals, write_tables

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    write_tables(tmp_path / "data")
    return Workspace(tmp_path)


def test_the_first_goal_of_each_kind_is_played(workspace: Workspace) -> None:
    view = worlds_view(workspace)
    assert view is not None
    world, arenas = worlds_and_goals()
    (row,) = view.domains
    assert (row.domain, row.worlds, row.tools) == ("tool rental", 1, str(len(world.tools)))
    assert row.goals == len(arenas)
    by_id = {arena.id: arena for arena in arenas}
    assert len(view.goals) == len({arena.kind for arena in arenas})
    for goal in view.goals:
        arena = by_id[goal.task.id]
        assert arena.id == min(one.id for one in arenas if one.kind == arena.kind)
        assert goal.policy == world.policy
        reference, idle = goal.task.episodes
        assert (reference.good, idle.good) == (True, False)
        assert dict(idle.facts)["verdict:"] != "nothing is wrong"
        changed = {(cell.table, cell.key) for cell in goal.cells if cell.table != "outcomes"}
        assert bool(changed) is bool(goal_of(arena).effect)
        assert {table for table, _ in changed} == {w.table for w in goal_of(arena).effect}
        assert all(cell.before != cell.after for cell in goal.cells)


def test_the_page_says_what_is_absent_and_shows_what_is_there(workspace: Workspace) -> None:
    page = render(workspace, 1)
    assert "Goals, played to their verdicts" in page
    assert "outcome missing:" in page or "state missing:" in page or "unsaid:" in page
    (workspace.root / "data/goals.parquet").unlink()
    assert "data/goals.parquet is not here" in render(workspace, 1)
    (workspace.root / "data/worlds.parquet").unlink()
    assert "data/worlds.parquet is not here" in render(workspace, 1)


def test_what_a_world_says_stays_text(workspace: Workspace) -> None:
    world, arenas = worlds_and_goals()
    hostile = world.model_copy(update={"policy": HOSTILE, "title": HOSTILE})
    write_records(workspace.root / "data/worlds.parquet", [hostile], World)
    assert len(arenas) > 0
    page = render(workspace, 1)
    assert HOSTILE not in page
    assert "&lt;script&gt;alert(1)" in page


def test_tables_that_do_not_fit_are_said(workspace: Workspace) -> None:
    strange = [
        one.model_copy(update={"world_id": "0" * 16, "id": ""})
        for one in read_records(workspace.root / "data/goals.parquet", Arena)
    ]
    strange = [Arena.model_validate(one.model_dump()) for one in strange]
    write_records(workspace.root / "data/goals.parquet", strange, Arena)
    view = worlds_view(workspace)
    assert view is not None
    assert not view.goals
    assert f"data/goals.parquet: {len(strange)} goals are of other worlds" in workspace.missing
    (workspace.root / "data/worlds.parquet").write_bytes(b"no table")
    assert worlds_view(workspace) is None
    assert any("cannot be shown" in line for line in workspace.missing)


def test_scores_on_goals_stand_beside_the_floors(workspace: Workspace) -> None:
    def block(mean: float) -> dict[str, Any]:
        part = {"n": 4, "success": mean}
        return {
            "n": 4, "success": {"mean": mean, "low": mean, "high": mean, "n": 4},
            "by_kind": {"write": part}, "by_trait": {"implicit": part},
            "by_domain": {"gym_classes": part},
        }  # fmt: skip

    found = {"mean": 0.5, "low": 0.4, "high": 0.6, "n": 4}
    document = {
        "suite": "held-out arenas", "arenas": 4, "sampling": {"confidence": 0.95},
        "checkpoints": {"rl": {"scores": {"f1": found}, "outcomes": {}, "excluded_infra": 0,
                               "by_hops": {"1": {"n": 4, "f1": 0.5}},
                               "by_scenario": {"single_hop": {"n": 4, "f1": 0.5}},
                               "by_domain": {"a": {"n": 4, "f1": 0.5}}}},
        "differences": {"rl-sft": {"f1": found}}, "references": {"floor": {"n": 4, "f1": 0.0}},
        "worlds": {"checkpoints": {"rl": block(0.625)},
                   "floors": {"floor": block(0.0), "first_candidate": block(0.375)}},
    }  # fmt: skip
    (workspace.root / "metrics").mkdir()
    file = workspace.root / "metrics/bench.json"
    file.write_text(json.dumps(document))
    page = " ".join(render(workspace, 1).split())
    assert "<h3>Goals in worlds</h3>" in page
    for cells in ("first candidate</th>", "trait: implicit</th><td>0.625</td><td>0.000</td>"):
        assert cells in page
    tables = {table.title: table for table in score_tables(file)}
    goals = tables["Success on goals in worlds, with the floors"]
    cells = zip(*(column.cells for column in goals.columns), strict=True)
    assert ("trait implicit", "0.625", "0.000", "0.375") in list(cells)
    file.write_text(json.dumps({**document, "worlds": {}}))
    assert "<h3>Goals in worlds</h3>" not in render(workspace, 1)
