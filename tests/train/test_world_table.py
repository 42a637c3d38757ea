"""Which tables arenas are read from."""

from __future__ import annotations

from pathlib import Path

import pytest
from training_world import make_arena

from astra.arena.world_table import WORLDS, read_arenas, tables_of
from astra.arena.worlds import UnknownWorld
from astra.records.environment import Arena
from astra.records.world import World
from astra.store.tables import write_records
from astra.tracking.mlflow import digests
from talking import GOAL, WORLD, talking_arena


def test_worlds_are_an_input_where_arenas_play_in_one(tmp_path: Path) -> None:
    """Their prompts are no part of an arena, nor of a world's id."""
    table = tmp_path / "envs_merged.parquet"
    write_records(tmp_path / WORLDS, [WORLD], World)
    write_records(table, [make_arena(1)], Arena)
    assert tables_of(table) == (table,)
    goal = talking_arena(GOAL).model_copy(update={"tools": (), "state": ""})
    write_records(table, [goal], Arena)
    assert tables_of(table) == (table, tmp_path / WORLDS)
    before = digests(*tables_of(table))
    other = WORLD.model_copy(update={"policy": f"{WORLD.policy} Be brief."})
    assert other.id == WORLD.id
    write_records(tmp_path / WORLDS, [other], World)
    assert digests(*tables_of(table)) != before


def test_worlds_that_are_missing_are_told_by_who_reads_them(tmp_path: Path) -> None:
    table = tmp_path / "envs_merged.parquet"
    goal = talking_arena(GOAL).model_copy(update={"tools": (), "state": ""})
    write_records(table, [goal], Arena)
    assert tables_of(table) == (table,)
    with pytest.raises(UnknownWorld, match="dvc repro worlds"):
        list(read_arenas(table))
