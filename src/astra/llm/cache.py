"""The cache of answers: what was paid for once is never asked again.

It is one SQLite file, ``answers.sqlite`` under the cache root, outside the workspace, shared by
all stages, experiments and processes. The key of an answer is a hash of all that determines it
(``answer_key``): model, messages, reply schema, sampling and sample index
(``openai_backend.teacher_key``, and for agents ``policy.EndpointPolicy.act``). The value is the
JSON reply, so the file holds no prompt, no credential and no code.

An answer is committed before the asker sees it: from then on it survives a kill of this process.
Within a second, when a thread has had the disk synchronised, it survives a power cut as well. The
commit is a write to the page cache, made where the reply is parsed: handing it to another thread
would cost more than it takes, and let replies pile up into bursts.

The same file keeps the ledger: what was spent under each budget, by stage and model.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from astra.errors import StageStop
from astra.records.base import canonical_json, compact_json
from astra.store.paths import cache_root
from astra.store.sqlite import connect

log = logging.getLogger("astra")
TABLES = (
    "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, model TEXT NOT NULL, "
    "value TEXT NOT NULL, committed INTEGER NOT NULL DEFAULT 0)",
    "CREATE TABLE IF NOT EXISTS ledger (budget TEXT, stage TEXT, model TEXT, requests INTEGER, "
    "tokens INTEGER, money REAL, PRIMARY KEY (budget, stage, model))",
)
PUT = "INSERT OR REPLACE INTO answers (key, model, value, committed) VALUES (?, ?, ?, ?)"
SPEND = (
    "INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
    "requests = requests + excluded.requests, tokens = tokens + excluded.tokens, "
    "money = money + excluded.money"
)
SYNC_S = 1.0
"""How long a committed answer may wait, in seconds, until it also survives a power cut."""


class CacheError(StageStop):
    """The cache cannot be written: going on would pay for answers that are then lost."""


@dataclass(frozen=True)
class CacheStats:
    """Answers and bytes of text per model, and the size of the file in bytes."""

    path: Path
    file_bytes: int
    models: dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Spent:
    """Requests, tokens and money of one request, or summed over several."""

    requests: int = 0
    tokens: int = 0
    money: float = 0.0


@dataclass(frozen=True)
class CachedReply:
    """One row of the cache: what a model replied to the ask that ``key`` stands for."""

    key: str
    model: str
    value: dict[str, Any]


def answer_key(request: Mapping[str, Any]) -> str:
    """The cache's key: SHA-256 of ``request``, which is all that determines an answer.

    ``openai_backend.teacher_key`` says what that is of an ask, ``policy.py`` of an agent's turn.
    Endpoints and keys of access are not part of it.
    """
    return hashlib.sha256(canonical_json(dict(request)).encode()).hexdigest()


def cache_path(root: Path | None = None) -> Path:
    """Where the cache lies, whether it is there or not."""
    return (root or cache_root()) / "answers.sqlite"


class AnswerCache:
    """A persistent map from answer key to JSON value, safe for several processes."""

    def __init__(self, root: Path | None = None) -> None:
        self.path = cache_path(root)
        self._connection = _open(self.path)
        for table in TABLES:
            self._connection.execute(table)
        columns = [row[1] for row in self._connection.execute("PRAGMA table_info(answers)")]
        if "committed" not in columns:  # a file from before ages were kept
            self._connection.execute(
                "ALTER TABLE answers ADD COLUMN committed INTEGER NOT NULL DEFAULT 0"
            )
        self._sync: _Sync | None = None

    def get(self, key: str) -> dict[str, Any] | None:
        """The committed value of a key, if there is one."""
        row = self._connection.execute("SELECT value FROM answers WHERE key = ?", (key,)).fetchone()
        return json.loads(row[0]) if row else None

    def put(self, key: str, model: str, value: Mapping[str, Any]) -> None:
        """Commit; the answer survives a kill of the process from now on. Raises CacheError."""
        self._write(PUT, _row(key, model, value))

    def spend(self, budget: str, stage: str, model: str, amount: Spent) -> None:
        """Add to the ledger. Raises CacheError."""
        self._write(SPEND, (budget, stage, model, amount.requests, amount.tokens, amount.money))

    def spent(self, budget: str, stage: str | None = None) -> Spent:
        """What the ledger holds for a budget, of one stage or of all."""
        where, values = "budget = ?", [budget]
        if stage is not None:
            where, values = where + " AND stage = ?", [budget, stage]
        row = self._connection.execute(
            "SELECT COALESCE(SUM(requests), 0), COALESCE(SUM(tokens), 0), "
            f"COALESCE(SUM(money), 0) FROM ledger WHERE {where}",
            values,
        ).fetchone()
        return Spent(*row)

    def ledger(self) -> list[tuple[str, str, str, Spent]]:
        """Every budget, stage and model with what was spent, in that order."""
        rows = self._connection.execute("SELECT * FROM ledger ORDER BY budget, stage, model")
        return [(row[0], row[1], row[2], Spent(*row[3:])) for row in rows]

    def stats(self) -> CacheStats:
        """How many answers there are, and how large, by model."""
        rows = self._connection.execute(
            "SELECT model, COUNT(*), SUM(LENGTH(value)) FROM answers GROUP BY model ORDER BY model"
        ).fetchall()
        models = {model: (count, size) for model, count, size in rows}
        return CacheStats(self.path, self.path.stat().st_size, models)

    def replies(self, model: str | None = None) -> Iterator[CachedReply]:
        """All cached replies, or those of one model, in the order of their keys."""
        clause = "" if model is None else "WHERE model = ?"
        rows = self._connection.execute(
            f"SELECT key, model, value FROM answers {clause} ORDER BY key",
            () if model is None else (model,),
        )
        for key, name, value in rows:
            yield CachedReply(key, name, json.loads(value))

    def add(self, replies: Iterator[CachedReply]) -> int:
        """Add the replies whose key is new, all or none of them; returns how many were new.

        A reply whose key is known already stays as it is.
        """
        added = 0
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for reply in replies:
                added += self._connection.execute(
                    PUT.replace("REPLACE", "IGNORE"), _row(reply.key, reply.model, reply.value)
                ).rowcount
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")
        return added

    def prune(self, model: str | None, older_than_s: float | None) -> int:
        """Delete the answers of ``model`` that are older than ``older_than_s`` seconds.

        None stands for any model, or any age. Returns how many were deleted.
        """
        conditions, values = ["1"], list[Any]()
        if model is not None:
            conditions, values = [*conditions, "model = ?"], [*values, model]
        if older_than_s is not None:
            conditions.append("committed < ?")
            values.append(int(time.time() - older_than_s))
        deleted = self._connection.execute(
            f"DELETE FROM answers WHERE {' AND '.join(conditions)}", values
        ).rowcount
        self._connection.execute("VACUUM")
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return deleted

    def close(self) -> None:
        """Synchronise the disk and close; idempotent."""
        if self._sync is not None:
            self._sync.stop()
            self._sync = None
        self._connection.close()

    def _write(self, statement: str, values: tuple[Any, ...]) -> None:
        if self._sync is None:
            self._sync = _Sync(self.path)
        try:
            self._connection.execute(statement, values)
        except sqlite3.Error as error:
            raise _unwritable(self.path, error) from error
        self._sync.changed()


def _open(path: Path) -> sqlite3.Connection:
    connection = connect(path)
    # Whoever commits would wait for the disk now and then; the thread does instead.
    connection.execute("PRAGMA wal_autocheckpoint=0")
    return connection


class _Sync(threading.Thread):
    """A thread that has the disk synchronised and SQLite's log folded into the file."""

    def __init__(self, path: Path) -> None:
        super().__init__(name="answers", daemon=True)
        self._path = path
        self._dirty, self._stopped = threading.Event(), threading.Event()
        self._problem: Exception | None = None
        self.start()

    def changed(self) -> None:
        """Note a commit. Raises CacheError if an earlier one could not be brought to disk."""
        if self._problem is not None:
            raise _unwritable(self._path, self._problem)
        if not self._dirty.is_set():
            self._dirty.set()

    def stop(self) -> None:
        """Synchronise once more and wait for it; a failure is logged, not raised."""
        self._stopped.set()
        self._dirty.set()
        self.join()
        if self._problem is not None:
            log.error("%s", _unwritable(self._path, self._problem))

    def run(self) -> None:
        try:
            with closing(connect(self._path)) as connection:
                stopped = False
                while not stopped:
                    self._dirty.wait()
                    self._stopped.wait(SYNC_S)
                    self._dirty.clear()
                    # Only now: a stop before the clearing would never wake this loop again.
                    stopped = self._stopped.is_set()
                    # Synchronises first the log, then the file; readers and writers go on.
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except (sqlite3.Error, OSError) as error:
            self._problem = error


def _unwritable(path: Path, error: Exception) -> CacheError:
    return CacheError(
        f"the answer cache {path} cannot be written: {error}. Free the disk or set ASTRA_CACHE to "
        "another folder, then run the same command again"
    )


def _row(key: str, model: str, value: Mapping[str, Any]) -> tuple[str, str, str, int]:
    # The keys stay in the model's own order: later prompts show the reply, and a replayed one
    # must not lead to other prompts than the fresh one did.
    return key, model, compact_json(dict(value)), int(time.time())
