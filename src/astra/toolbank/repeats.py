"""Remembers names and tools of the servers so far, to tell repeats."""

from __future__ import annotations

from collections.abc import Collection

from astra.store.sqlite import scratch
from astra.toolbank.clean import safe_name
from astra.toolbank.properties import free_name


class KnownServers:
    """Servers by name and by tools, in a temporary database that ends with the object."""

    def __init__(self, similarity: float) -> None:
        """``similarity``: Jaccard index of tools from which two servers are the same."""
        self._similarity = similarity
        self._rows = scratch(
            "CREATE TABLE names (name TEXT PRIMARY KEY) WITHOUT ROWID",
            "CREATE TABLE kept (n INTEGER PRIMARY KEY, name TEXT, tools INTEGER)",
            "CREATE TABLE offers (tool TEXT, n INTEGER, PRIMARY KEY (tool, n)) WITHOUT ROWID",
        )

    def __contains__(self, name: object) -> bool:
        return bool(self._rows.execute("SELECT 1 FROM names WHERE name = ?", (name,)).fetchone())

    def new_name(self, wanted: str) -> str:
        """A name that chat APIs accept and no server had before; it is taken from now on."""
        name = free_name(safe_name(wanted), self)
        self._rows.execute("INSERT INTO names VALUES (?)", (name,))
        return name

    def same_tools(self, signatures: Collection[str]) -> str | None:
        """Name of the first kept server that offers (nearly) these tools."""
        places = ", ".join("?" * len(signatures))
        sharing = self._rows.execute(
            "SELECT name, tools, COUNT(*) FROM offers JOIN kept USING (n) "
            f"WHERE tool IN ({places}) GROUP BY n ORDER BY n",
            tuple(signatures),
        )
        for name, tools, shared in sharing:
            if shared >= self._similarity * (tools + len(signatures) - shared):
                return name
        return None

    def keep(self, name: str, signatures: Collection[str]) -> None:
        added = self._rows.execute(
            "INSERT INTO kept (name, tools) VALUES (?, ?)", (name, len(signatures))
        )
        rows = ((signature, added.lastrowid) for signature in signatures)
        self._rows.executemany("INSERT INTO offers VALUES (?, ?)", rows)
