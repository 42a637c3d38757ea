"""The host's end of the delta protocol: a world's rows, changed by executed calls only.

A session is given the world once and answers each call with what came back, the rows that changed
and a digest of every table they are in. The host applies the changes to rows of its own: a call
that changed a table its tool may not write, or a row into none, is an exception that changes
nothing, and a session whose digests are not those of its changes is ended. A new session gets the
world as it was at the start, and then the tables that are no longer so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

from astra.arena.state import VIOLATION
from astra.records.base import compact_json
from astra.records.state import Row, Tables
from astra.records.world import RowChange, World
from astra.sandbox import delta_session
from astra.sandbox.delta_session import DIGESTS, as_text, line_hash
from astra.sandbox.protocol import SandboxResult, SandboxStatus, Session

DELTA = "delta"
"""The function of a session that takes the protocol's requests."""
_TOOLS = "_delta_tools"
_PART = 160_000
"""Characters of a table sent at once: at most four bytes each, below the limit of a frame."""
MAX_CELL_CHARS = 16_384
MAX_CELL_DEPTH = 8
MAX_CHANGES = 1_000
"""Rows that one call may change; like the two above our choice: no tool of a desk needs more."""
MAX_TABLE_ROWS = 20_000

Rows = dict[str, dict[str, Row]]
"""Rows by table and key."""


@lru_cache(maxsize=1)
def _delta_source() -> str:
    """The session's end as a source whose tools all sources of the session can reach."""
    text = Path(delta_session.__file__).read_text(encoding="utf-8")
    return f'{text}\n\n__builtins__["{_TOOLS}"] = _session.tools\n'


def world_sources(code: Mapping[str, str]) -> dict[str, str]:
    """What a session of a world loads, given the code of its tools by name."""
    tools = {name: f'{text}\n\n{_TOOLS}["{name}"] = {name}\n' for name, text in code.items()}
    return {DELTA: _delta_source(), **tools}


class WorldBase:
    """A world made ready for many episodes: its rows by key, as text, and their digests."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.columns = {
            table.name: frozenset(column.name for column in table.columns) for table in world.tables
        }
        self.keys = {table.name: table.key for table in world.tables}
        self.fields = {table.name: table.fields for table in world.tables}
        self.writes = {tool.tool.name: frozenset(tool.writes) for tool in world.tools}
        self.rows: Rows = {
            name: {row[key]: row for row in world.rows.get(name, ())}
            for name, key in self.keys.items()
        }
        """Not to be changed."""
        for name, by_key in self.rows.items():
            if len(by_key) != len(world.rows.get(name, ())):
                raise ValueError(f"world {world.id}: two rows of {name} share a key")
        self.texts = {name: as_text(list(rows.values())) for name, rows in self.rows.items()}
        self._digests: dict[str, int] = {}

    def digest(self, table: str) -> int:
        """The digest of a table at the start."""
        if table not in self._digests:
            self._digests[table] = sum(map(_row_hash, self.rows[table].values())) % DIGESTS
        return self._digests[table]


@lru_cache(maxsize=512)
def world_base(text: str) -> WorldBase:
    """The world that a resolved arena's ``state`` holds as JSON."""
    return WorldBase(World.model_validate_json(text))


class _Told(NamedTuple):
    """What a session says about a call."""

    value: Any
    writes: dict[str, dict[str, Row | None]]
    digest: dict[str, str]


class WorldCopy:
    """One episode's copy of a world: what the calls so far have made of it."""

    def __init__(self, base: WorldBase) -> None:
        self.base = base
        self._rows: Rows = dict(base.rows)
        self._digests: dict[str, int] = {}
        self._version = 0
        self._loaded: Session | None = None

    @property
    def tables(self) -> Tables:
        """The rows as they are now, in the order in which tools see them."""
        return {name: list(rows.values()) for name, rows in self._rows.items()}

    def changed(self) -> list[str]:
        """The tables that a call has changed."""
        return [name for name, rows in self._rows.items() if rows is not self.base.rows[name]]

    def row(self, table: str, key: str) -> Row | None:
        """A row by its key."""
        return self._rows[table].get(key)

    def loading(self, session: Session) -> list[dict[str, Any]]:
        """The requests that bring a session to where the world is; none where it is there."""
        if self._loaded is session:
            return []
        self._loaded, self._version = session, 0
        opening = {"op": "open", "clock": self.base.world.clock, "keys": self.base.keys}
        requests: list[dict[str, Any]] = [opening]
        for name, text in self.base.texts.items():
            requests += _parts(name, text, base=True)
        for name in self.changed():
            requests += _parts(name, as_text(list(self._rows[name].values())), base=False)
        return requests

    def reset(self) -> dict[str, Any] | None:
        """Forget all changes; the request that makes a loaded session forget them too."""
        self._rows, self._digests, self._version = dict(self.base.rows), {}, 0
        return {"op": "reset"} if self._loaded is not None else None

    def request(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The request that calls a tool."""
        return {"op": "call", "tool": tool, "arguments": arguments, "version": self._version}

    def take(self, tool: str, result: SandboxResult) -> tuple[SandboxResult, tuple[RowChange, ...]]:
        """An executed call as its caller sees it, and what it changed, which is then applied.

        A session that broke the protocol is closed.
        """
        if result.status != SandboxStatus.OK:
            return result, ()
        told = _told(result.value)
        fault = "the session's end of the protocol was taken over" if told is None else ""
        if told is None or self._lies(told):
            fault = fault or "the session's digest is not that of its changes"
            self._drop()
        elif not (fault := self._fault(tool, told.writes)):
            return result._replace(value=told.value), self._apply(told.writes)
        failed = SandboxStatus.EXCEPTION
        return result._replace(status=failed, value=None, error=f"{VIOLATION}{fault}"), ()

    def unload(self) -> None:
        """Forget a session that could not be loaded."""
        self._loaded = None

    def _drop(self) -> None:
        if self._loaded is not None:
            self._loaded.close()
            self._loaded = None

    def _lies(self, told: _Told) -> bool:
        """Whether a digest is not that of the rows after the changes."""
        return told.digest.keys() != told.writes.keys() or any(
            table not in self._rows or str(self._digest_after(table, rows)) != told.digest[table]
            for table, rows in told.writes.items()
        )

    def _digest_after(self, table: str, writes: Mapping[str, Row | None]) -> int:
        total = self._digests.get(table, self.base.digest(table))
        for key, row in writes.items():
            before = self._rows[table].get(key)
            total += (_row_hash(row) if row else 0) - (_row_hash(before) if before else 0)
        return total % DIGESTS

    def _fault(self, tool: str, writes: Mapping[str, Mapping[str, Row | None]]) -> str:
        """Why a tool may not have changed what it did; empty if it may."""
        for table, rows in writes.items():
            if table not in self.base.writes.get(tool, ()):
                return f"{tool} must not change table {table}"
            if len(self._rows[table]) + len(rows) > MAX_TABLE_ROWS:
                return f"table {table} grows beyond {MAX_TABLE_ROWS} rows"
            for key, row in rows.items():
                if row is None and key not in self._rows[table]:
                    return f"row {key!r} of {table} cannot go: there is none"
                if row is not None and (why := self._row_fault(table, key, row)):
                    return f"row {key!r} of {table}: {why}"
        count = sum(map(len, writes.values()))
        limit = f"the limit is {MAX_CHANGES}"
        return f"{tool} changed {count} rows; {limit}" if count > MAX_CHANGES else ""

    def _row_fault(self, table: str, key: str, row: Row) -> str:
        if row.keys() != self.base.columns[table]:
            odd = sorted(row.keys() ^ self.base.columns[table])
            return f"its columns are not the table's: {odd}"
        if row[self.base.keys[table]] != key:
            return "it has another key"
        return next((why for name in row if (why := cell_fault(name, row[name]))), "")

    def _apply(self, writes: Mapping[str, Mapping[str, Row | None]]) -> tuple[RowChange, ...]:
        if not writes:
            return ()
        self._version += 1
        for table, rows in writes.items():
            self._digests[table] = self._digest_after(table, dict(rows))
            after = dict(self._rows[table])
            for key, row in rows.items():
                if row is None:
                    del after[key]
                else:
                    after[key] = row
            self._rows[table] = after
        return tuple(_changes(writes))


def _changes(writes: Mapping[str, Mapping[str, Row | None]]) -> Iterator[RowChange]:
    for table, rows in writes.items():
        for key, row in rows.items():
            yield RowChange.model_construct(table=table, key=key, row=row)


def _row_hash(row: Row) -> int:
    return line_hash(as_text(row))


def cell_fault(column: str, cell: Any) -> str:
    """Why a cell is larger or deeper than a table admits; empty if it is not."""
    if not isinstance(cell, list | dict):
        long = isinstance(cell, str) and len(cell) > MAX_CELL_CHARS
        return f"{column} has more than {MAX_CELL_CHARS} characters" if long else ""
    if len(compact_json(cell)) > MAX_CELL_CHARS:
        return f"{column} has more than {MAX_CELL_CHARS} characters as JSON"
    if _depth(cell) > MAX_CELL_DEPTH:
        return f"{column} is nested more than {MAX_CELL_DEPTH} deep"
    return ""


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        value = list(cast("Row", value).values())
    if not isinstance(value, list):
        return 0
    return 1 + max((_depth(item) for item in cast("list[Any]", value)), default=0)


def _told(returned: Any) -> _Told | None:
    """What a session answered, or None if it is no answer of the protocol."""
    if not isinstance(returned, dict) or set(cast("Row", returned)) != set(_Told._fields):
        return None
    told = _Told(**cast("Row", returned))
    shaped = (
        isinstance(told.writes, dict)
        and isinstance(told.digest, dict)
        and all(
            isinstance(rows, dict)
            and all(row is None or isinstance(row, dict) for row in rows.values())
            for rows in told.writes.values()
        )
    )
    return told if shaped else None


def _parts(table: str, text: str, base: bool) -> list[dict[str, Any]]:
    """The requests that load one table."""
    starts = range(0, len(text), _PART)
    return [
        {"op": "load", "table": table, "text": text[at : at + _PART], "base": base,
         "last": at == starts[-1]}
        for at in starts
    ]  # fmt: skip
