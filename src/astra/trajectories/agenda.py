"""The agenda of stage ``trajectories``: its tasks on disk, by order, id and what may follow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Self

from astra.records.base import content_id
from astra.records.task import Task, TaskKind
from astra.records.tool import Execution, ToolServer
from astra.store.sqlite import scratch

FOLLOW_UPS_PER_SERVER = 32
"""How many tasks of one server are kept as those that may follow another one."""
SOLVABLE = (TaskKind.CHAIN, TaskKind.SERVER)
REMEMBERED_SERVERS = 64


class Agenda:
    """All tasks, those of live servers apart, in a temporary database. Use it in ``with``."""

    def __init__(self, tasks: Iterable[Task], servers: Iterable[ToolServer]) -> None:
        live = {server.id for server in servers if server.execution == Execution.LIVE}
        self._rows = scratch(
            "CREATE TABLE tasks (n INTEGER PRIMARY KEY, id TEXT, server_id TEXT, live INTEGER, "
            "rank TEXT, task TEXT)",
            "CREATE INDEX by_id ON tasks (id)",
            "CREATE INDEX by_server ON tasks (server_id, id) WHERE live",
            "CREATE INDEX by_rank ON tasks (server_id, rank) WHERE rank IS NOT NULL",
        )
        self._remembered = lru_cache(maxsize=REMEMBERED_SERVERS)(self._ranked)
        for task in tasks:
            follows = task.kind in SOLVABLE and task.plan
            rank = content_id(["follow-up", task.id]) if follows else None
            self._rows.execute(
                "INSERT INTO tasks (id, server_id, live, rank, task) VALUES (?, ?, ?, ?, ?)",
                (task.id, task.server_id, task.server_id in live, rank, task.model_dump_json()),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._rows.close()

    def live(self) -> Iterator[Task]:
        """Tasks of live servers, server by server, so that processes are used again."""
        return self._tasks("WHERE live ORDER BY server_id, id")

    def others(self) -> Iterator[Task]:
        """The other tasks in the order in which they came."""
        return self._tasks("WHERE NOT live ORDER BY n")

    def one(self, task_id: str) -> Task | None:
        """The task of an id, if there is one."""
        return next(self._tasks("WHERE id = ?", task_id), None)

    def follow_ups(self, server_id: str) -> tuple[Task, ...]:
        """The tasks of a server that may follow another one: the ``FOLLOW_UPS_PER_SERVER`` first
        by a hash.
        """
        return self._remembered(server_id)

    def _ranked(self, server_id: str) -> tuple[Task, ...]:
        clauses = "WHERE server_id = ? AND rank IS NOT NULL ORDER BY rank LIMIT ?"
        return tuple(self._tasks(clauses, server_id, FOLLOW_UPS_PER_SERVER))

    def _tasks(self, clauses: str, *values: object) -> Iterator[Task]:
        for (row,) in self._rows.execute(f"SELECT task FROM tasks {clauses}", values):
            yield Task.model_validate_json(row)
