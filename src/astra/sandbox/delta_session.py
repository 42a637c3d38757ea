"""The end of the delta protocol inside a session: it holds a world, and tells what calls change.

Loaded into the session as a source beside the tools, so it imports only what tools may. Whatever a
tool does to it, the host trusts nothing of it: it applies the changes to its own rows, refuses
those that the tool may not make, and compares digests.

Rows are kept as text, table by table, and parsed when a tool first looks at a table. After a call
the tables that it looked at are written as text again: an equal text is an unchanged table, and a
failed call is undone by forgetting what was parsed.
"""

import json
from collections.abc import Callable, Iterator, MutableMapping
from hashlib import blake2b
from typing import Any, NamedTuple


def _encoder() -> Callable[[Any], str]:
    """Compact JSON by one C encoder, which ``json.dumps`` would make anew for every row."""
    encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    module: Any = json.encoder
    if module.c_make_encoder is None:
        return encoder.encode
    chunks = module.c_make_encoder(
        None, encoder.default, module.c_encode_basestring, None, ":", ",", False, False, False
    )
    return lambda value: "".join(chunks(value, 0))


as_text = _encoder()
"""A row, or the rows of a table, as the text in which sessions keep them."""
_DIGEST_BYTES = 8
DIGESTS = 1 << (8 * _DIGEST_BYTES)
"""Digests are sums of rows' hashes, modulo this."""


def line_hash(line: str) -> int:
    """A number for a row given as text."""
    return int.from_bytes(blake2b(line.encode(), digest_size=_DIGEST_BYTES).digest(), "big")


def derived_id(table: str, parts: tuple[Any, ...], taken: Callable[[str], bool]) -> str:
    """An id that depends on the parts alone: the table, six hex digits, and a number from 2 on
    where it is taken."""
    text = as_text([table, *parts])
    base = f"{table}-{blake2b(text.encode(), digest_size=3).hexdigest()}"
    made, number = base, 1
    while taken(made):
        number += 1
        made = f"{base}-{number}"
    return made


class _Table(NamedTuple):
    """A table that changes: its rows by key, each as text too, and their digest."""

    rows: dict[str, Any]
    """Never shown to a tool, so that nothing changes them."""
    lines: dict[str, str]
    digest: int
    writes: dict[str, Any]
    """What became of the rows that the last call changed."""

    @classmethod
    def of(cls, text: str, column: str) -> "_Table":
        rows = {row[column]: row for row in json.loads(text)}
        lines = {key: as_text(row) for key, row in rows.items()}
        return cls(rows, lines, sum(map(line_hash, lines.values())) % DIGESTS, {})

    @property
    def text(self) -> str:
        return f"[{','.join(self.lines.values())}]"

    def after(self, name: str, column: str, rows: list[Any], text: str) -> "_Table":
        """The table once its rows are these, written ``text``: those that stay in their order, new
        ones at the end."""
        now: dict[str, Any] = {}
        for row in rows:
            key = row.get(column) if isinstance(row, dict) else None
            if not isinstance(key, str):
                raise ValueError(f"a row of {name} has no key in {column}")
            if key in now:
                raise ValueError(f"two rows of {name} have the key {key!r}")
            now[key] = row
        changed = [key for key, row in now.items() if self.rows.get(key) != row]
        made = self._with(now, changed)
        if list(now) == list(made.lines) and made.text == text:
            return made
        # Python takes 1, 1.0 and True for equal, and order does not matter to it: compare text
        return self._with(now, [key for key in now if self.lines.get(key) != as_text(now[key])])

    def _with(self, now: dict[str, Any], changed: list[str]) -> "_Table":
        lines = {key: as_text(now[key]) for key in changed}
        gone = [key for key in self.rows if key not in now]
        after = {**self.lines, **lines}
        rows = {**self.rows, **{key: json.loads(line) for key, line in lines.items()}}
        for key in gone:
            del after[key], rows[key]
        digest = self.digest + sum(line_hash(line) for line in lines.values())
        digest -= sum(line_hash(self.lines[key]) for key in (*gone, *lines) if key in self.lines)
        writes = {**dict.fromkeys(gone), **{key: rows[key] for key in lines}}
        return _Table(rows, after, digest % DIGESTS, writes)


class _Tables(MutableMapping[str, list[dict[str, Any]]]):
    """The tables as tools see them: a dictionary that remembers what was looked at."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.parsed: dict[str, Any] = {}
        self.touched: set[str] = set()

    def __getitem__(self, name: str) -> list[dict[str, Any]]:
        text = self.texts[name]
        self.touched.add(name)
        if name not in self.parsed:
            self.parsed[name] = json.loads(text)
        return self.parsed[name]

    def __setitem__(self, name: str, rows: list[dict[str, Any]]) -> None:
        if name not in self.texts:
            raise KeyError(f"there is no table {name!r}")
        self.touched.add(name)
        self.parsed[name] = rows

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"table {name!r} cannot be removed")

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    def put(self, name: str, text: str) -> None:
        """Let a table be as its text says."""
        self.texts[name] = text
        self.parsed.pop(name, None)


class _World:
    """What a tool gets as its first argument."""

    def __init__(self) -> None:
        self.tables, self.clock = _Tables(), ""
        self.keys: dict[str, str] = {}
        self.made: set[str] = set()

    def new_id(self, table: str, *parts: Any) -> str:
        column, rows = self.keys[table], self.tables[table]

        def taken(made: str) -> bool:
            return made in self.made or any(row.get(column) == made for row in rows)

        made = derived_id(table, parts, taken)
        self.made.add(made)
        return made


class _Session:
    def __init__(self) -> None:
        self.tools: dict[str, Callable[..., Any]] = {}
        self.world = _World()
        self.base: dict[str, str] = {}
        self.incoming: list[str] = []
        self.version = 0
        self.tables: dict[str, _Table] = {}
        """Tables that a call has changed or tried to."""
        self.undo: dict[str, _Table] = {}

    def open(self, clock: str, keys: dict[str, str]) -> None:
        self.world.clock, self.world.keys = clock, keys

    def load(self, table: str, text: str, last: bool, base: bool) -> None:
        """Take a part of a table's text; with ``base``, of how it is at the start."""
        self.incoming.append(text)
        if last:
            whole = "".join(self.incoming)
            self.incoming.clear()
            self.world.tables.put(table, whole)
            if base:
                self.base[table] = whole

    def reset(self) -> None:
        """Let everything be as at the start."""
        tables = self.world.tables
        for name, text in self.base.items():
            if tables.texts[name] != text:
                tables.put(name, text)
                self.tables.pop(name, None)
        self.version, self.undo = 0, {}

    def call(self, tool: str, arguments: dict[str, Any], version: int) -> dict[str, Any]:
        """Run a tool: its value, the rows that changed by table and key, a digest of each table
        that did. ``version`` is how many changes the host has accepted: one that it has not is
        taken back first."""
        if version == self.version - 1:
            self._put(self.undo)
        elif version != self.version:
            raise SystemExit(3)
        self.version, self.undo = version, {}
        tables = self.world.tables
        tables.touched.clear()
        self.world.made.clear()
        try:
            value = self.tools[tool](self.world, **arguments)
            told = self._changes()
        except BaseException:
            for name in tables.touched:
                tables.parsed.pop(name, None)
            raise
        self.undo = {name: self.tables[name] for name in told}
        self._put(told)
        self.version += bool(told)
        return {
            "value": value,
            "writes": {name: table.writes for name, table in told.items()},
            "digest": {name: str(table.digest) for name, table in told.items()},
        }

    def _put(self, changed: dict[str, _Table]) -> None:
        for name, table in changed.items():
            self.tables[name] = table
            self.world.tables.put(name, table.text)

    def _changes(self) -> dict[str, _Table]:
        """The tables that changed, as they are now."""
        tables, told = self.world.tables, {}
        try:
            for name in sorted(tables.touched):
                rows, text = tables.parsed[name], as_text(tables.parsed[name])
                if text != tables.texts[name]:
                    if name not in self.tables:
                        self.tables[name] = _Table.of(tables.texts[name], self.world.keys[name])
                    told[name] = self.tables[name].after(name, self.world.keys[name], rows, text)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"write violation: {error}") from None
        return told


_session = _Session()


def delta(op: str, **given: Any) -> Any:
    """What the host calls: ``open``, ``load``, ``reset`` or ``call``."""
    return getattr(_session, op)(**given)
