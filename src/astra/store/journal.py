"""The journal: results of executed work by item, so that a killed stage resumes where it stopped.

Keys are content keys of everything that determined the result; values are JSON, and come back
with the keys of their objects in the order in which they were put. Entries are committed one by
one; a torn write is impossible (SQLite).
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any, Self

from astra.records.base import compact_json
from astra.store.paths import cache_root
from astra.store.sqlite import connect


class Journal:
    """A persistent map from content key to JSON value, safe for several processes.

    Close it, or use it in ``with``.
    """

    def __init__(self, name: str, root: Path | None = None) -> None:
        path = (root or cache_root()) / "journal" / f"{name}.sqlite"
        self._connection: sqlite3.Connection = connect(path)
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, value TEXT NOT NULL)"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def get(self, key: str) -> Any | None:
        """The committed value, or None. (A committed value is never JSON null.)"""
        row = self._connection.execute("SELECT value FROM entries WHERE key = ?", (key,)).fetchone()
        return json.loads(row[0]) if row else None

    def put(self, key: str, value: Any) -> None:
        """Commit a value; ValueError for null."""
        if value is None:
            raise ValueError("a journal value must not be null: get() could not tell it apart")
        self._connection.execute(
            "INSERT OR REPLACE INTO entries VALUES (?, ?)", (key, compact_json(value))
        )

    def close(self) -> None:
        self._connection.close()
