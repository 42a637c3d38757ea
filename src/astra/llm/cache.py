"""Teacher answers by content: what was paid for once is never asked again.

One SQLite file under the cache root, outside the workspace, shared by all stages, experiments
and processes. Keys are hashes; values are JSON replies, so the file holds no prompt, no
credential and no code. An answer is on disk before the asker sees it.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from astra.records.base import canonical_json
from astra.store.paths import cache_root
from astra.store.sqlite import connect


@dataclass(frozen=True)
class CacheStats:
    """Answers and bytes of text per model, and the size of the file in bytes."""

    path: Path
    file_bytes: int
    models: dict[str, tuple[int, int]]


def answer_key(request: Mapping[str, Any]) -> str:
    """SHA-256 of everything that determines an answer; endpoints and keys are not part of it."""
    return hashlib.sha256(canonical_json(dict(request)).encode()).hexdigest()


def cache_path(root: Path | None = None) -> Path:
    return (root or cache_root()) / "answers.sqlite"


class AnswerCache:
    """A persistent map from answer key to JSON value, safe for several processes."""

    def __init__(self, root: Path | None = None) -> None:
        self.path = cache_path(root)
        # Answers cost money, hence also safe against a power cut.
        self._connection: sqlite3.Connection = connect(self.path, synchronous="FULL")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS answers "
            "(key TEXT PRIMARY KEY, model TEXT NOT NULL, value TEXT NOT NULL)"
        )

    def get(self, key: str) -> dict[str, Any] | None:
        row = self._connection.execute("SELECT value FROM answers WHERE key = ?", (key,)).fetchone()
        return json.loads(row[0]) if row else None

    def put(self, key: str, model: str, value: Mapping[str, Any]) -> None:
        """Commit; returns once the answer survives a kill of the process."""
        self._connection.execute(
            "INSERT OR REPLACE INTO answers VALUES (?, ?, ?)",
            (key, model, canonical_json(dict(value))),
        )

    def stats(self) -> CacheStats:
        rows = self._connection.execute(
            "SELECT model, COUNT(*), SUM(LENGTH(value)) FROM answers GROUP BY model ORDER BY model"
        ).fetchall()
        models = {model: (count, size) for model, count, size in rows}
        return CacheStats(self.path, self.path.stat().st_size, models)

    def close(self) -> None:
        self._connection.close()
