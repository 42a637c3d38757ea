"""SQLite for what processes share, and for what one of them puts aside while it works."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Literal

WAIT_S = 60.0
"""How long a connection waits for a lock, in seconds."""


def connect(path: Path, synchronous: Literal["NORMAL", "FULL"] = "NORMAL") -> sqlite3.Connection:
    """A connection in autocommit mode. NORMAL survives a kill, FULL also a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(
        path, isolation_level=None, timeout=WAIT_S, check_same_thread=False
    )
    # SQLite does not wait for the lock when several processes switch a new file to the
    # write-ahead log at once, so this waits instead.
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            break
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                connection.close()
                raise
            time.sleep(0.02)
    connection.execute(f"PRAGMA synchronous={synchronous}")
    return connection


def scratch(*tables: str) -> sqlite3.Connection:
    """A private database with ``tables``, gone when it is closed; for one thread at a time.

    It takes a few megabytes of memory, and beyond that a file without a name in TMPDIR or
    /var/tmp. Nothing in it can be rolled back.
    """
    connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    for statement in ("PRAGMA journal_mode=OFF", "PRAGMA synchronous=OFF", *tables, "BEGIN"):
        connection.execute(statement)
    return connection
