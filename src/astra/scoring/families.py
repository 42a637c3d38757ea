"""Families of tasks: a task and its variants go to the same split, train or eval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

from astra.records.base import content_id
from astra.records.task import Task
from astra.scoring.candidates import SelectionError
from astra.store.sqlite import scratch

TRAIN, EVAL = "train", "eval"
_PARENT = "SELECT parent FROM parents WHERE id = ?"


class Families:
    """Tasks with the tasks augmented from them, as families that are never split.

    They lie in a temporary database. Use it in ``with``, or enter it in the stage.
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._rows = scratch(
            "CREATE TABLE parents (id TEXT PRIMARY KEY, parent TEXT) WITHOUT ROWID",
            "CREATE TABLE merged (id TEXT PRIMARY KEY, into_id TEXT) WITHOUT ROWID",
        )
        pairs = ((task.id, task.parent_id) for task in tasks)
        self._rows.executemany("INSERT INTO parents VALUES (?, ?)", pairs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._rows.close()

    def join(self, task_ids: Sequence[str]) -> None:
        """Make the families of these tasks one, since one conversation holds all the tasks."""
        first, *others = sorted({self._family(task_id) for task_id in task_ids})
        pairs = ((other, first) for other in others)
        self._rows.executemany("INSERT INTO merged VALUES (?, ?)", pairs)

    def _family(self, task_id: str) -> str:
        """The id of the task's family: its root, or the root that this one was joined to."""
        family = self.root(task_id)
        while row := self._row("SELECT into_id FROM merged WHERE id = ?", family):
            family = row[0]
        return family

    def root(self, task_id: str) -> str:
        """The first ancestor. A parent that was filtered out still names the family."""
        row = self._row(_PARENT, task_id)
        if row is None:
            raise SelectionError(
                f"task {task_id} of a trajectory is not in the task table; rebuild with "
                "`dvc repro trajectories`"
            )
        seen = {task_id}
        while row and (parent := row[0]):
            if parent in seen:
                raise SelectionError(f"task {parent} is its own ancestor")
            seen.add(parent)
            task_id = parent
            row = self._row(_PARENT, task_id)
        return task_id

    def _row(self, query: str, key: str) -> tuple[str] | None:
        return self._rows.execute(query, (key,)).fetchone()

    def split(self, task_id: str, eval_share: float, seed: int) -> str:
        """``train`` or ``eval``, by a hash of the family: the same in every run and order."""
        ticket = int(content_id(["split", seed, self._family(task_id)]), 16) / 16**16
        return EVAL if ticket < eval_share else TRAIN
