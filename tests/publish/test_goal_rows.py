"""Arenas that are goals go out with their world, so that a row is all that an episode takes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, cast

import pytest

from astra.arena.env import offered
from astra.arena.world_table import WORLDS
from astra.arena.worlds import base_of, goal_of
from astra.publish.data_rows import ARENA_COUNTED, RowGate, arena_rows
from astra.publish.licences import LicenceBook
from astra.publish.origins import ARENAS, TOOLS
from astra.publish.rows import SplitWriter
from astra.records.environment import Arena
from astra.records.tool import ToolServer
from astra.records.world import GoalTrait, World
from astra.store.tables import write_records
from talking import GOAL, WORLD, talking_arena


class KeptRows:
    """Takes what a writer would write."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, split: str, row: dict[str, Any]) -> None:
        self.rows.append({"split": split, **row})


def published_rows(root: Path, source: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    goal = GOAL.model_copy(update={"traits": (GoalTrait.LATE_TOOL,)})
    arena = talking_arena(goal).model_copy(update={"tools": (), "state": "", "source": source})
    write_records(TOOLS, [], ToolServer)
    write_records(ARENAS.with_name(WORLDS), [WORLD], World)
    write_records(ARENAS, [arena], Arena)
    book = LicenceBook.read(root / "conf/licences.yaml")
    kept = KeptRows()
    gate = RowGate(book, cast("SplitWriter", kept), io.StringIO(), ARENA_COUNTED)
    arena_rows(gate)
    return kept.rows, gate.document()


def test_a_goal_goes_out_with_its_world(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (row,), counts = published_rows(root, "worlds:yard")
    assert row["traits"] == ["late_tool"]
    assert row["prompt"][0]["content"] == WORLD.policy
    back = Arena.model_validate(row["arena"])
    assert goal_of(back).script == GOAL.script
    assert base_of(back).world == WORLD
    names = [offer.tool.name for offer in offered(back, ())]
    assert names == [tool["function"]["name"] for tool in row["tools"]]
    assert "find_person" in names
    assert "book_boat" not in names
    assert (row["licence"], counts["traits"]) == ("Apache-2.0", {"late_tool": 1})


def test_a_goal_in_somebodys_service_stays_behind(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows, counts = published_rows(root, "service:repair_cafe")
    assert rows == []
    assert counts["left_out"] == {"rows": 1, "licence": {"unknown": 1}}
