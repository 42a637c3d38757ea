"""Typed parquet of published rows: free-form values have Arrow's JSON type.

`datasets` loads such columns as dicts and lists exactly as written, where structs would put a null
wherever another row has a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from astra.records.base import compact_json

BATCH_ROWS = 512
FOLDER = "data"


class SplitWriter:
    """Writes ``data/<split>.parquet`` below a folder as rows come. Use it in ``with``."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._folder = folder / FOLDER
        self._folder.mkdir(parents=True, exist_ok=True)
        self._schema = schema
        self._files = ExitStack()
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._waiting: dict[str, list[Mapping[str, Any]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self._files:
            if error[0] is None:
                for split in self._waiting:
                    self._flush(split)

    def add(self, split: str, row: Mapping[str, Any]) -> None:
        """Put a row aside; columns of JSON type take any JSON value."""
        if split not in self._writers:
            writer = pq.ParquetWriter(
                self._folder / f"{split}.parquet", self._schema, compression="zstd"
            )
            self._writers[split] = self._files.enter_context(writer)
        rows = self._waiting.setdefault(split, [])
        rows.append(row)
        if len(rows) >= BATCH_ROWS:
            self._flush(split)

    def _flush(self, split: str) -> None:
        rows = self._waiting[split]
        if rows:
            columns = list(self._columns(rows))
            self._writers[split].write_table(pa.Table.from_arrays(columns, schema=self._schema))
            rows.clear()

    def _columns(self, rows: list[Mapping[str, Any]]) -> Iterator[pa.Array]:
        """JSON is text first: Arrow makes its JSON type from strings only by a cast."""
        for field in self._schema:
            values = [row[field.name] for row in rows]
            if field.type == pa.json_():
                yield pa.array([compact_json(v) for v in values], pa.string()).cast(field.type)
            elif field.type == pa.list_(pa.json_()):
                texts = [[compact_json(part) for part in value] for value in values]
                yield pa.array(texts, pa.list_(pa.string())).cast(field.type)
            else:
                yield pa.array(values, field.type)


def read_rows(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a folder with their splits, JSON columns as text."""
    for path in sorted((folder / FOLDER).glob("*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(BATCH_ROWS):
            for row in batch.to_pylist():
                yield path.stem, row
