"""Exported worlds in tau2-Bench: what each scripted side plays, and what the package pays it."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import worlds_export_tau2
from worlds_export_tau2 import NOTHING, scripts

from astra.arena.world_table import read_arenas
from astra.arena.worlds import base_of, goal_of
from astra.bench.harness.environment import DRIVERS
from astra.records.environment import Arena
from astra.records.world import World, WorldShape
from astra.store.tables import write_records
from world_goals import worlds_and_goals


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    world, arenas = worlds_and_goals("museum_ticketing", WorldShape.SMALL, 8)
    folder = tmp_path_factory.mktemp("held_out")
    write_records(folder / "worlds.parquet", [world], World)
    write_records(folder / "goals.parquet", sorted(arenas, key=lambda one: one.id), Arena)
    return folder / "goals.parquet"


def moves_of(script: list[dict[str, Any]]) -> Any:
    if str(DRIVERS) not in sys.path:
        sys.path.append(str(DRIVERS))
    spec = importlib.util.spec_from_file_location("export_driver", DRIVERS / "play_tau2_export.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Moves(script)


def test_sides_take_turns_and_say_nothing_out_of_turn() -> None:
    call = {"tool": "find", "arguments": {}}
    moves = moves_of([{"user": "Hi."}, call, {"say": "Seen."}, {"say": "Done."}, {"user": "Bye."},
                      {"say": "Bye."}, call])  # fmt: skip
    assert moves.user() == "Hi."
    assert moves.call() == call
    assert moves.call() is None
    assert moves.say() == "Seen.\nDone."
    assert moves.call() is None
    assert moves.say() == "One moment."  # the user's words come next
    assert moves.user() == "Bye."
    assert moves.say() == "Bye."
    assert moves.user() == "Please go on."  # a call comes next
    assert moves.call() == call
    assert moves.user() == "###STOP###"


def test_each_side_leaves_out_what_it_is_named_after(table: Path) -> None:
    seen: set[str] = set()
    for arena in read_arenas(table):
        goal, base = goal_of(arena), base_of(arena)
        made = dict(scripts(arena))
        seen |= made.keys()
        oracle = made["oracle"]
        assert len(oracle) == len(goal.trace)
        assert made["mute"] == [{"user": goal.trace[0].text}, {"say": NOTHING}]
        if "careless" in made:
            (left,) = [at for at, move in enumerate(oracle)
                       if made["careless"] == oracle[:at] + oracle[at + 1 :]]  # fmt: skip
            assert base.writes[oracle[left]["tool"]]
        if "silent" in made:
            assert goal.say
            assert {move["say"] for move in made["silent"] if "say" in move} == {NOTHING}
    assert seen == {"oracle", "mute", "careless", "silent"}


@pytest.mark.slow
def test_the_package_pays_the_oracle_alone(bench_env: Path, table: Path, tmp_path: Path,
                                           capsys: pytest.CaptureFixture[str],
                                           monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    arguments = ["worlds_export_tau2", "--json", "--table", str(table), "--out"]
    monkeypatch.setattr(sys, "argv", [*arguments, str(tmp_path / "out")])
    worlds_export_tau2.main()
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    (tasks,) = figures["tasks"].values()
    assert figures["wrong"] == []
    assert tasks + sum(figures["left_out"].values()) == figures["goals"]
    assert figures["rewards"]["oracle"] == {"1": tasks}
    assert figures["rewards"]["mute"] == {"0": tasks}
    assert set(figures["rewards"]["careless"]) == {"0"}
