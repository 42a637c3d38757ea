"""Arenas of a table, with the worlds that they play in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from astra.arena.worlds import UnknownWorld, resolve, world_texts
from astra.records.environment import Arena
from astra.records.world import World
from astra.store.tables import read_records

WORLDS = "worlds.parquet"
"""The table of worlds, which lies beside every table of arenas."""


def tables_of(table: Path) -> tuple[Path, ...]:
    """The tables that ``read_arenas`` reads of a table of arenas: that of worlds too, whose prompts
    no arena names, where one plays in a world."""
    worlds = table.with_name(WORLDS)
    # The column is left out where no arena has a world (Arena.sparse).
    plays = "world_id" in pq.read_schema(table).names
    return (table, worlds) if plays and worlds.is_file() else (table,)


def read_arenas(table: Path) -> Iterator[Arena]:
    """The arenas of a table in id order, each given its world where it plays in one.

    The table of worlds is read when the first such arena comes. Raises UnknownWorld.
    """
    texts: dict[str, str] | None = None
    for arena in read_records(table, Arena):
        if arena.world_id and texts is None:
            worlds = table.with_name(WORLDS)
            if not worlds.is_file():
                raise UnknownWorld(
                    f"arena {arena.id} of {table} plays in world {arena.world_id}, and {worlds} "
                    "is not there: `dvc repro worlds` makes it, `dvc pull` brings it"
                )
            texts = world_texts(read_records(worlds, World))
        yield resolve(arena, texts or {})
