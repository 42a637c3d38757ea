"""The shelf: records put aside on disk while a stage runs, found again by a key.

What a stage has to look up or to read twice goes here, so that its memory does not grow with
its data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Generic, Self, TypeVar

from astra.records.base import Record
from astra.store.sqlite import scratch

RecordType = TypeVar("RecordType", bound=Record)
REMEMBERED_KEYS = 64
"""How many keys' records are kept parsed: items of one server often come together."""


class Shelf(Generic[RecordType]):
    """Records by key, in the order in which they were put in; for one thread at a time.

    Use it in ``with``, or enter it in the stage. A record may be put in twice.
    """

    def __init__(
        self,
        model: type[RecordType],
        key: Callable[[RecordType], str],
        records: Iterable[RecordType] = (),
    ) -> None:
        self._model = model
        self._key = key
        self._rows = scratch(
            "CREATE TABLE rows (n INTEGER PRIMARY KEY, key TEXT, row TEXT)",
            "CREATE INDEX by_key ON rows (key)",
        )
        self._remembered = lru_cache(maxsize=REMEMBERED_KEYS)(self._find)
        for record in records:
            self.add(record)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._rows.close()

    def __len__(self) -> int:
        (count,) = self._rows.execute("SELECT COUNT(*) FROM rows").fetchone()
        return count

    def __iter__(self) -> Iterator[RecordType]:
        for (row,) in self._rows.execute("SELECT row FROM rows ORDER BY n"):
            yield self._model.model_validate_json(row)

    def add(self, record: RecordType) -> None:
        """Put one more in, behind those of its key."""
        self._rows.execute(
            "INSERT INTO rows (key, row) VALUES (?, ?)",
            (self._key(record), record.model_dump_json()),
        )
        self._remembered.cache_clear()

    def of(self, key: str) -> tuple[RecordType, ...]:
        """All records of a key; none is an empty tuple."""
        return self._remembered(key)

    def one(self, key: str) -> RecordType | None:
        """The first record of a key."""
        return next(iter(self.of(key)), None)

    def _find(self, key: str) -> tuple[RecordType, ...]:
        rows = self._rows.execute("SELECT row FROM rows WHERE key = ? ORDER BY n", (key,))
        return tuple(self._model.model_validate_json(row) for (row,) in rows)
