"""Which records of a table belong to one tool server (``astra show TABLE --server NAME``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pyarrow import parquet

from astra.errors import AstraError
from astra.records.score import Rejection
from astra.records.tool import ToolServer
from astra.store.tables import record_name

SERVERS = "tools"
"""The table of all servers."""
REFERRED = ("graph", "chains", "tasks", "trajectories")
"""Tables of records with a ``server_id``, to which records of later stages refer by their id."""
REJECTING = ("graph", "chains", "tasks", "trajectories", "sft_set")
"""Stages whose rejections name a record of a server as their ``item``."""
NEAREST = 3


class ServerFilterError(AstraError):
    """The table's records belong to no server, or there is no server of that name."""


def of_server(path: Path, data: Path, wanted: str) -> Callable[[Mapping[str, Any]], bool]:
    """The test whether a row of the table at ``path`` belongs to server ``wanted``.

    ``wanted`` is the name or the id of a server in ``<data>/tools.parquet``. A row belongs to it
    by ``server_id``; a training sample by its trajectory; a rejection by the record that it
    names. Raises ServerFilterError for a table without servers and for an unknown server.
    """
    column = _column(path)
    ids = _ids(data / f"{SERVERS}.parquet", wanted)
    if column in ("trajectory_id", "item"):
        # Such a row names a record of an earlier stage instead of the server itself.
        ids |= {record for table in REFERRED for record in _records(data, table, ids)}
    return lambda row: row[column] in ids


def _column(path: Path) -> str:
    """The column by which a row belongs to a server. Raises ServerFilterError if there is none."""
    name = record_name(path)
    if name == ToolServer.__name__:
        return "id"
    if name == Rejection.__name__ and path.stem in REJECTING:
        return "item"
    known = parquet.ParquetFile(path).schema_arrow.names
    for column in ("server_id", "trajectory_id"):
        if column in known:
            return column
    stages = ", ".join(f"rejected/{stage}" for stage in REJECTING)
    raise ServerFilterError(
        f"--server: records of {path} name no server; those of {SERVERS}, graph, chains, "
        f"chain_verdicts, tasks, trajectories, sft_set, {stages} do"
    )


def _ids(servers: Path, wanted: str) -> set[str]:
    """The ids of the servers named ``wanted``. Raises ServerFilterError with similar names."""
    if not servers.is_file():
        raise ServerFilterError(
            f"--server looks names up in {servers}, which is not there; build it with "
            f"`dvc repro {SERVERS}` or `dvc pull`"
        )
    names = {row["id"]: row["name"] for row in _rows(servers, ["id", "name"])}
    ids = {server_id for server_id, name in names.items() if wanted in (server_id, name)}
    if not ids:
        nearest = get_close_matches(wanted, [*names.values(), *names], NEAREST, cutoff=0.4)
        hint = f"; the nearest are {', '.join(nearest)}" if nearest else ""
        raise ServerFilterError(
            f"--server: no server {wanted!r} in {servers}{hint}; one that was dropped is in "
            f"`astra show rejected/{SERVERS} --where 'item~{wanted}'`"
        )
    return ids


def _records(data: Path, table: str, servers: set[str]) -> Iterator[str]:
    """Ids of the records of ``servers`` in a table; none where the table is not built yet."""
    path = data / f"{table}.parquet"
    if path.is_file():
        rows = _rows(path, ["id", "server_id"])
        yield from (row["id"] for row in rows if row["server_id"] in servers)


def _rows(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    for batch in parquet.ParquetFile(path).iter_batches(columns=list(columns)):
        yield from batch.to_pylist()
