"""Records in and out of parquet: typed, sorted by id, atomic, streaming both ways.

Scalars become columns; everything else is a JSON string column, because Arrow would merge
free-form structs across rows and leak nulls into schemas. The keys in that text stand in the
record's own order: a tool's parameters stay as their publisher arranged them. Rows are sorted on
disk (SQLite), so memory does not grow with the data and concurrency upstream cannot change the
bytes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, get_origin

import pyarrow as pa
import pyarrow.parquet as pq

from astra.errors import AstraError
from astra.records.base import Record, canonical_json, compact_json
from astra.store.replacing import replacing
from astra.store.sqlite import scratch

BATCH_ROWS = 1024
RecordType = TypeVar("RecordType", bound=Record)


class TableError(AstraError):
    """A table cannot be read as the record asked for; the message says which stage rebuilds it."""


def arrow_schema(model: type[Record], left_out: Collection[str] = ()) -> pa.Schema:
    """The explicit schema of a record: one column per field, ``id`` first."""
    fields = [pa.field("id", pa.string(), nullable=False)]
    for name, info in model.model_fields.items():
        if name != "id" and name not in left_out:
            fields.append(pa.field(name, _arrow_type(info.annotation), nullable=True))
    return pa.schema(fields, metadata={"record": model.__name__})


def _arrow_type(annotation: Any) -> pa.DataType:
    if annotation is bool:
        return pa.bool_()
    if annotation is int:
        return pa.int64()
    if annotation is float:
        return pa.float64()
    return pa.string()


def _is_plain(annotation: Any) -> bool:
    """Whether a field is stored as is (a string or number) rather than as JSON text."""
    if annotation in (bool, int, float, str):
        return True
    return get_origin(annotation) is None and (
        isinstance(annotation, type) and issubclass(annotation, StrEnum)
    )


class TableWriter(Generic[RecordType]):
    """Rows put aside on disk as they come, written sorted by id at ``commit``.

    Use as a context manager: leaving it without a commit writes nothing.
    """

    def __init__(self, path: Path, model: type[RecordType]) -> None:
        self._path = path
        self._model = model
        self._used: set[str] = set()
        # Rows lie in the order they come, only their ids in a tree: in one of rows, most
        # insertions would read and write a page of the file.
        self._spool = scratch("CREATE TABLE rows (id TEXT PRIMARY KEY, row TEXT)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._spool.close()

    def add(self, record: RecordType) -> bool:
        """Put a row aside; False if an equal one is there already.

        Of equal records whose objects have their keys in different orders, the one with the
        smaller text stays. Raises TableError for a different record with the same id: whichever
        came last would win, and concurrency would change the bytes.
        """
        self._used.update(name for name in record.sparse if getattr(record, name))
        row = json.dumps(_to_row(record))
        added = self._spool.execute("INSERT OR IGNORE INTO rows VALUES (?, ?)", (record.id, row))
        if added.rowcount:
            return True
        (known,) = self._spool.execute("SELECT row FROM rows WHERE id = ?", (record.id,)).fetchone()
        if known != row:
            self._require_equal(known, row, record)
            if row < known:
                self._spool.execute("UPDATE rows SET row = ? WHERE id = ?", (row, record.id))
        return False

    def _require_equal(self, known: str, row: str, record: RecordType) -> None:
        """Raise TableError unless the two rows of one id differ in the order of keys alone."""
        fields = type(record).model_fields
        old, new = json.loads(known), json.loads(row)
        differing = sorted(
            name
            for name in new
            if old[name] != new[name]
            and (
                _is_plain(fields[name].annotation)
                or canonical_json(json.loads(old[name])) != canonical_json(json.loads(new[name]))
            )
        )
        if differing:
            raise TableError(
                f"{self._path}: two {type(record).__name__} records have id {record.id} and "
                f"differ in {differing}; the stage must keep one of them by a rule"
            )

    def commit(self) -> int:
        """Replace the table atomically; returns the row count."""
        count = 0
        schema = arrow_schema(self._model, set(self._model.sparse) - self._used)
        with (
            replacing(self._path) as partial,
            pq.ParquetWriter(partial, schema, compression="zstd") as writer,
        ):
            cursor = self._spool.execute("SELECT row FROM rows ORDER BY id")
            while batch := cursor.fetchmany(BATCH_ROWS):
                rows = [json.loads(row) for (row,) in batch]
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                count += len(rows)
        return count


def write_records(path: Path, records: Iterable[RecordType], model: type[RecordType]) -> int:
    """Write ``records`` sorted by id, replacing ``path`` atomically; returns the row count.

    Equal records collapse to one row. Different records with one id raise TableError.
    """
    with TableWriter(path, model) as writer:
        for record in records:
            writer.add(record)
        return writer.commit()


def _to_row(record: Record) -> dict[str, Any]:
    dumped = record.model_dump(mode="json")
    fields = type(record).model_fields
    return {
        name: value if _is_plain(fields[name].annotation) else compact_json(value)
        for name, value in dumped.items()
    }


def read_records(path: Path, model: type[RecordType]) -> Iterator[RecordType]:
    """Stream the records of a table in id order. Raises TableError naming the file and row."""
    table = _open(path)
    names = set(table.schema_arrow.names)
    differing = (set(model.model_fields) ^ names) - (set(model.sparse) - names)
    if differing:
        raise TableError(
            f"{path} is no table of {model.__name__}: columns {sorted(differing)} are missing or "
            f"unknown; rebuild it with `dvc repro {path.stem}`"
        )
    fields = model.model_fields
    for batch in table.iter_batches(batch_size=BATCH_ROWS):
        for row in batch.to_pylist():
            try:
                values = {
                    name: value if _is_plain(fields[name].annotation) else json.loads(value)
                    for name, value in row.items()
                }
                record = model.model_validate(values)
            except (ValueError, TypeError) as error:
                raise TableError(f"{path} row {row.get('id')}: {error}") from error
            yield record


def count_records(path: Path) -> int:
    """The number of rows, read from the file's footer alone."""
    return _open(path).metadata.num_rows


def record_name(path: Path) -> str:
    """The record class that wrote the table, as its schema states it; empty if it does not."""
    metadata: dict[bytes, bytes] = _open(path).schema_arrow.metadata or {}
    return metadata.get(b"record", b"").decode()


def _open(path: Path) -> pq.ParquetFile:
    if not path.is_file():
        raise TableError(f"{path} not found; build it with `dvc repro {path.stem}` or `dvc pull`")
    try:
        return pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise TableError(
            f"{path} cannot be read ({error}); rebuild it with `dvc repro {path.stem}`"
        ) from error
