"""The agenda of stage ``trajectories``: its tasks on disk, and which is asked for after which."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Self

from astra.records.task import Task
from astra.records.tool import Execution, ToolServer
from astra.store.sqlite import scratch


class Agenda:
    """All tasks, those of live servers apart, in a temporary database. Use it in ``with``."""

    def __init__(self, tasks: Iterable[Task], servers: Iterable[ToolServer]) -> None:
        live = {server.id for server in servers if server.execution == Execution.LIVE}
        self._rows = scratch(
            "CREATE TABLE tasks (n INTEGER PRIMARY KEY, id TEXT, server_id TEXT, live INTEGER, "
            "task TEXT)",
            "CREATE INDEX by_id ON tasks (id)",
            "CREATE INDEX by_server ON tasks (server_id, id)",
            "CREATE TABLE pairs (first TEXT PRIMARY KEY, later TEXT UNIQUE) WITHOUT ROWID",
        )
        for task in tasks:
            self._rows.execute(
                "INSERT INTO tasks (id, server_id, live, task) VALUES (?, ?, ?, ?)",
                (task.id, task.server_id, task.server_id in live, task.model_dump_json()),
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

    def of_server(self, server_id: str) -> tuple[Task, ...]:
        """The tasks of a server by id."""
        return tuple(self._tasks("WHERE server_id = ? ORDER BY id", server_id))

    def questions(self, server_id: str) -> set[str]:
        """The questions of a server's tasks."""
        rows = self._rows.execute(
            "SELECT json_extract(task, '$.question') FROM tasks WHERE server_id = ?", (server_id,)
        )
        return {question for (question,) in rows}

    def pair(self, pairs: Mapping[str, Task]) -> None:
        """Keep which task is asked for after the one of an id, so that no server is paired twice.

        In the order of ids the tasks of one server lie far apart.
        """
        rows = ((first, later.id) for first, later in pairs.items())
        self._rows.executemany("INSERT INTO pairs VALUES (?, ?)", rows)

    def after(self, task_id: str) -> Task | None:
        """The task that is asked for after the one of this id, if there is one."""
        return next(self._tasks("JOIN pairs ON id = later WHERE first = ?", task_id), None)

    def comes_later(self, task_id: str) -> bool:
        """Whether the task of this id is asked for after another one."""
        rows = self._rows.execute("SELECT 1 FROM pairs WHERE later = ?", (task_id,))
        return rows.fetchone() is not None

    def _tasks(self, clauses: str, *values: object) -> Iterator[Task]:
        for (row,) in self._rows.execute(f"SELECT task FROM tasks {clauses}", values):
            yield Task.model_validate_json(row)
