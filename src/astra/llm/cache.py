"""Teacher answers by content: what was paid for once is never asked again.

One SQLite file under the cache root, outside the workspace, shared by all stages, experiments
and processes. Keys are hashes; values are JSON replies, so the file holds no prompt, no
credential and no code. An answer is on disk before the asker sees it: a thread commits the
answers of all asks that wait in one transaction, so that a slow disk costs latency, not rate.

The same file keeps the ledger: what was spent under each budget, by stage and model.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import queue
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from astra.errors import StageStop
from astra.records.base import canonical_json
from astra.store.paths import cache_root
from astra.store.sqlite import connect

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
WRITE_TIMEOUT_S = 60.0


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
    """Requests, tokens and money; a sum or an amount."""

    requests: int = 0
    tokens: int = 0
    money: float = 0.0


@dataclass(frozen=True)
class Answer:
    """One row: what the model replied to the ask that ``key`` stands for."""

    key: str
    model: str
    value: dict[str, Any]


@dataclass(frozen=True)
class _Write:
    statement: str
    values: tuple[Any, ...]
    done: Future[None] | asyncio.Future[None] | None = None


def answer_key(request: Mapping[str, Any]) -> str:
    """SHA-256 of everything that determines an answer; endpoints and keys are not part of it."""
    return hashlib.sha256(canonical_json(dict(request)).encode()).hexdigest()


def cache_path(root: Path | None = None) -> Path:
    return (root or cache_root()) / "answers.sqlite"


class AnswerCache:
    """A persistent map from answer key to JSON value, safe for several processes."""

    def __init__(self, root: Path | None = None) -> None:
        self.path = cache_path(root)
        self._connection: sqlite3.Connection = connect(self.path, synchronous="FULL")
        for table in TABLES:
            self._connection.execute(table)
        columns = [row[1] for row in self._connection.execute("PRAGMA table_info(answers)")]
        if "committed" not in columns:  # a file from before ages were kept
            self._connection.execute(
                "ALTER TABLE answers ADD COLUMN committed INTEGER NOT NULL DEFAULT 0"
            )
        self._writes: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None

    def get(self, key: str) -> dict[str, Any] | None:
        row = self._connection.execute("SELECT value FROM answers WHERE key = ?", (key,)).fetchone()
        return json.loads(row[0]) if row else None

    def put(self, key: str, model: str, value: Mapping[str, Any]) -> None:
        """Commit; returns once the answer survives a kill of the process."""
        done: Future[None] = Future()
        self._enqueue(_Write(PUT, _row(key, model, value), done))
        done.result(WRITE_TIMEOUT_S)

    async def commit(self, key: str, model: str, value: Mapping[str, Any]) -> None:
        """``put`` from an event loop, which goes on meanwhile. Raises CacheError."""
        done = asyncio.get_running_loop().create_future()
        self._enqueue(_Write(PUT, _row(key, model, value), done))
        await done

    def spend(self, budget: str, stage: str, model: str, amount: Spent) -> None:
        """Add to the ledger; on disk soon, at the latest with the next answer."""
        row = (budget, stage, model, amount.requests, amount.tokens, amount.money)
        self._enqueue(_Write(SPEND, row))

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
        rows = self._connection.execute(
            "SELECT model, COUNT(*), SUM(LENGTH(value)) FROM answers GROUP BY model ORDER BY model"
        ).fetchall()
        models = {model: (count, size) for model, count, size in rows}
        return CacheStats(self.path, self.path.stat().st_size, models)

    def answers(self, model: str | None = None) -> Iterator[Answer]:
        """All answers, or those of one model, in the order of their keys."""
        chosen = "" if model is None else "WHERE model = ?"
        rows = self._connection.execute(
            f"SELECT key, model, value FROM answers {chosen} ORDER BY key",
            () if model is None else (model,),
        )
        for key, name, value in rows:
            yield Answer(key, name, json.loads(value))

    def add(self, answers: Iterator[Answer]) -> int:
        """Add answers whose key is new, all or none; returns how many were. Known ones stay."""
        added = 0
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for one in answers:
                added += self._connection.execute(
                    PUT.replace("REPLACE", "IGNORE"), _row(one.key, one.model, one.value)
                ).rowcount
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")
        return added

    def prune(self, model: str | None, older_than_s: float | None) -> int:
        """Delete answers of ``model`` that are older; None: any. Returns how many went."""
        conditions, values = ["1"], list[Any]()
        if model is not None:
            conditions, values = [*conditions, "model = ?"], [*values, model]
        if older_than_s is not None:
            conditions.append("committed < ?")
            values.append(int(time.time() - older_than_s))
        gone = self._connection.execute(
            f"DELETE FROM answers WHERE {' AND '.join(conditions)}", values
        ).rowcount
        self._connection.execute("VACUUM")
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return gone

    def close(self) -> None:
        if self._writer is not None:
            self._writes.put(None)
            self._writer.join()
            self._writer = None
        self._connection.close()

    def _enqueue(self, write: _Write) -> None:
        if self._writer is None:
            self._writer = threading.Thread(target=self._write_all, name="answers", daemon=True)
            self._writer.start()
        self._writes.put(write)

    def _write_all(self) -> None:
        """The writer thread: one transaction for all that waits, then the next."""
        # Answers cost money, hence also safe against a power cut.
        connection = connect(self.path, synchronous="FULL")
        while True:
            batch, last = self._drain()
            problem: CacheError | None = None
            try:
                connection.execute("BEGIN IMMEDIATE")
                for write in batch:
                    connection.execute(write.statement, write.values)
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                problem = CacheError(
                    f"the answer cache {self.path} cannot be written: {error}. Free the disk or "
                    "set ASTRA_CACHE to another folder, then run the same command again"
                )
            _settle(batch, problem)
            if last:
                connection.close()
                return

    def _drain(self) -> tuple[list[_Write], bool]:
        """What waits, at least one write; True once the cache is being closed."""
        batch: list[_Write] = []
        item = self._writes.get()
        while item is not None:
            batch.append(item)
            try:
                item = self._writes.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True


def _row(key: str, model: str, value: Mapping[str, Any]) -> tuple[str, str, str, int]:
    return key, model, canonical_json(dict(value)), int(time.time())


def _settle(batch: list[_Write], problem: CacheError | None) -> None:
    """Wake those who wait, each event loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for write in batch:
        if isinstance(write.done, asyncio.Future):
            by_loop.setdefault(write.done.get_loop(), []).append(write.done)
        elif write.done is not None:
            _resolve([write.done], problem)
    for loop, waiting in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, waiting, problem)


def _resolve(
    waiting: list[Future[None]] | list[asyncio.Future[None]], problem: CacheError | None
) -> None:
    for future in waiting:
        if future.done():
            continue  # its asker was cancelled; the answer is kept all the same
        if problem is None:
            future.set_result(None)
        else:
            future.set_exception(problem)
