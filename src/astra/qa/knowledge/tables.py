"""Tables from files as a knowledge source: CSV, parquet and SQLite.

A source is one or more tables, each with a key column of unique names. What a column holds is
read off its cells unless it is stated: the names of another table's keys are links to it, ISO
dates are dates, numbers are numbers, and a few repeated words are categories. Other text is left
out. A row belongs to the split that owns its name or, where it links to other rows, to the split
of all of those; a row whose links lead to several splits is dropped, so no link crosses splits.
"""

from __future__ import annotations

import csv
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from astra.qa.config import TableFile, TableSource
from astra.qa.knowledge.calculations import ADD_DAYS, DAYS_BETWEEN, WEEKDAY
from astra.qa.knowledge.chinese import PHRASES, WORDS
from astra.qa.knowledge.schema import (
    LEAST_ROWS,
    CellType,
    KnowledgeError,
    KnowledgeSource,
    Relation,
    lookup,
    split_of_name,
)
from astra.records.base import content_id
from astra.records.qa import Split, Table

MOST_CATEGORIES = 20
"""Most different words that a column of categories has."""
READ_ROWS = 200_000
"""Most rows of a file; a larger one has to be cut by its owner, who knows which rows matter."""
Row = dict[str, Any]
"""Column -> cell."""


def load_tables(
    name: str, spec: TableSource, split: Split, folder: Path, limit: int
) -> KnowledgeSource:
    """A source of one split's rows, at most ``limit`` per table.

    Raises KnowledgeError, which names file and repair.
    """
    raw = {table: _read(folder, name, table, file) for table, file in spec.tables.items()}
    kinds = {table: _kinds(table, spec, raw) for table in spec.tables}
    links = _links(spec, raw, kinds)
    owners = _owners(spec, raw, links)
    kept: dict[str, list[Row]] = {}
    for table, file in spec.tables.items():
        own = [row for row in raw[table] if owners[table].get(row[file.key]) is split]
        kept[table] = sorted(own, key=lambda row: content_id(["order", row[file.key]]))[:limit]
    _drop_dangling(spec, kept, links)
    return _source(f"file:{name}", spec, split, kept, kinds, links)


def source_of_rows(
    name: str, spec: TableSource, split: Split, raw: Mapping[str, list[Row]]
) -> KnowledgeSource:
    """A source of rows that are at hand and all of one split; ``spec`` names keys and columns."""
    kinds = {table: _kinds(table, spec, raw) for table in spec.tables}
    return _source(name, spec, split, raw, kinds, _links(spec, raw, kinds))


def _read(folder: Path, name: str, table: str, file: TableFile) -> list[Row]:
    path = folder / file.path
    where = f"knowledge table {name}.{table} ({path})"
    if not path.is_file():
        raise KnowledgeError(f"{where}: no such file; put it there or change qa.tables.{name}")
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise KnowledgeError(f"{where}: files end in {', '.join(sorted(_READERS))}")
    try:
        rows = reader(path, file)
    except (sqlite3.Error, pa.ArrowException, csv.Error, UnicodeDecodeError) as error:
        raise KnowledgeError(f"{where} cannot be read: {error}") from error
    if len(rows) > READ_ROWS:
        raise KnowledgeError(f"{where} has more than {READ_ROWS} rows; keep those that matter")
    if not rows or file.key not in rows[0]:
        raise KnowledgeError(f"{where} has no rows with the key column {file.key!r}")
    # A row without a name, or whose name another row has, cannot be asked about.
    counts: dict[Any, int] = {}
    for row in rows:
        counts[row[file.key]] = counts.get(row[file.key], 0) + 1
    named = [r for r in rows if isinstance(r[file.key], str) and counts[r[file.key]] == 1]
    return [row for row in named if row[file.key].strip()]


def _read_csv(path: Path, file: TableFile) -> list[Row]:
    with path.open(newline="", encoding="utf-8-sig") as handle:
        return [
            {column: _cell(text) for column, text in row.items() if column}
            for _, row in zip(range(READ_ROWS + 1), csv.DictReader(handle), strict=False)
        ]


def _read_parquet(path: Path, file: TableFile) -> list[Row]:
    rows: list[Row] = []
    for batch in pq.ParquetFile(path).iter_batches():
        rows += [{c: _plain(v) for c, v in row.items()} for row in batch.to_pylist()]
        if len(rows) > READ_ROWS:
            break
    return rows


def _read_sqlite(path: Path, file: TableFile) -> list[Row]:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        quoted = '"' + file.table.replace('"', '""') + '"'
        cursor = connection.execute(f"SELECT * FROM {quoted} LIMIT {READ_ROWS + 1}")
        columns = [description[0] for description in cursor.description]
        return [dict(zip(columns, map(_plain, row), strict=True)) for row in cursor]


_READERS = {
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".sqlite": _read_sqlite,
    ".db": _read_sqlite,
}


def _cell(text: str | None) -> Any:
    """A CSV cell as the number it writes, else as text; None where it is empty."""
    if text is None or not text.strip():
        return None
    text = text.strip()
    if text[0] == "0" and text[1:2].isdigit():
        return text  # a code, not a number
    for read in (int, float):
        try:
            number = read(text)
        except ValueError:
            continue
        return text if _is_endless(number) else number
    return text


def _plain(value: Any) -> Any:
    """A cell as JSON has it: a date as text, and what is no finite number as missing."""
    if _is_endless(value):
        return None  # files of other programs hold NaN where a number is missing
    return value.isoformat() if isinstance(value, date) else value


def _is_endless(value: Any) -> bool:
    """Whether a cell is NaN or an infinity, which no record can hold."""
    return isinstance(value, float) and not math.isfinite(value)


def _kinds(table: str, spec: TableSource, raw: Mapping[str, list[Row]]) -> dict[str, CellType]:
    """The columns of a table that can be asked and what they hold, the key first."""
    file = spec.tables[table]
    keys = [{row[other.key] for row in raw[name]} for name, other in spec.tables.items()]
    kinds = {file.key: CellType.ENTITY}
    for column in raw[table][0]:
        if column == file.key or (file.columns and column not in file.columns):
            continue
        cells = [row.get(column) for row in raw[table]]
        if column in file.kinds:
            kinds[column] = file.kinds[column]
        elif kind := _kind(cells, keys):
            kinds[column] = kind
    return kinds


def _kind(cells: Sequence[Any], keys: Sequence[set[Any]]) -> CellType | None:
    """The type of a column's cells, or None where they cannot be asked.

    ``keys`` are the names of each table. Links are looked for before dates and categories, as
    names may look like either.
    """
    values = [cell for cell in cells if cell is not None and not _is_endless(cell)]
    if len(values) < len(cells) or not values:
        return None  # an unknown cell would be an unanswerable question
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        return CellType.NUMBER
    if not all(isinstance(value, str) for value in values):
        return None
    if any(set(values) <= known for known in keys):
        return CellType.ENTITY
    if all(_is_date(value) for value in values):
        return CellType.DATE
    few = len(set(values)) <= min(MOST_CATEGORIES, len(values) // 2)
    return CellType.CATEGORY if few else None


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _links(
    spec: TableSource, raw: Mapping[str, list[Row]], kinds: Mapping[str, Mapping[str, CellType]]
) -> dict[tuple[str, str], str]:
    """(table, column) -> the first table whose keys the column's cells are."""
    links: dict[tuple[str, str], str] = {}
    for table, columns in kinds.items():
        for column, kind in list(columns.items())[1:]:
            if kind is CellType.ENTITY:
                cells = {row[column] for row in raw[table]}
                for other, file in spec.tables.items():
                    if cells <= {row[file.key] for row in raw[other]}:
                        links[table, column] = other
                        break
    return links


def _owners(
    spec: TableSource,
    raw: Mapping[str, list[Row]],
    links: Mapping[tuple[str, str], str],
) -> dict[str, dict[str, Split]]:
    """Table -> name -> the split that owns it, such that no link leads to another split.

    Names that no split may have are left out.
    """
    owners: dict[str, dict[str, Split]] = {}
    by_name: dict[str, set[Split | None]] = {}

    def settle(table: str, waiting: tuple[str, ...]) -> dict[str, Split]:
        """The owners of a table's names; tables that it links to are settled first."""
        if table in owners:
            return owners[table]
        if table in waiting:
            raise KnowledgeError(
                f"tables {' -> '.join((*waiting, table))} link to each other in a circle; leave "
                "out a column with `columns`"
            )
        targets = {c: links[t, c] for t, c in links if t == table and links[t, c] != table}
        linked = {column: settle(other, (*waiting, table)) for column, other in targets.items()}
        owned: dict[str, Split] = {}
        for row in raw[table]:
            name = row[spec.tables[table].key]
            splits = {linked[column].get(row[column]) for column in targets}
            splits = splits or {split_of_name(name)}  # a row without links goes by its own name
            split = next(iter(splits))
            if len(splits) == 1 and split is not None:
                owned[name] = split
            by_name.setdefault(name, set()).update(splits)
        owners[table] = owned
        return owned

    for table in spec.tables:
        settle(table, ())
    # One name in two tables may be of two splits: then it is of none.
    return {
        table: {name: split for name, split in owned.items() if by_name[name] == {split}}
        for table, owned in owners.items()
    }


def _drop_dangling(
    spec: TableSource, kept: dict[str, list[Row]], links: Mapping[tuple[str, str], str]
) -> None:
    """Remove rows whose link leads to a row that is not kept, and tables that are too small."""
    # A row that goes may be what other rows link to, so this repeats until nothing changes.
    while True:
        before = {table: len(rows) for table, rows in kept.items()}
        for table, rows in kept.items():
            if len(rows) < LEAST_ROWS:
                kept[table] = []
        for (table, column), other in links.items():
            names = {row[spec.tables[other].key] for row in kept[other]}
            kept[table] = [row for row in kept[table] if row[column] in names]
        if before == {table: len(rows) for table, rows in kept.items()}:
            return


def _source(
    name: str,
    spec: TableSource,
    split: Split,
    kept: Mapping[str, list[Row]],
    kinds: Mapping[str, Mapping[str, CellType]],
    links: Mapping[tuple[str, str], str],
) -> KnowledgeSource:
    tables: dict[str, Table] = {}
    relations: list[Relation] = []
    starts: dict[str, tuple[str, ...]] = {}
    for table, file in spec.tables.items():
        if not kept[table]:
            continue
        columns = tuple(kinds[table])
        rows = tuple(tuple(row[column] for column in columns) for row in kept[table])
        tables[table] = Table(name=table, columns=columns, rows=rows)
        starts[file.key] = tuple(row[file.key] for row in kept[table])
        relations += _relations(table, spec, kinds[table], links)
    if any(relation.target == "date" for relation in relations):
        relations += [ADD_DAYS, DAYS_BETWEEN, WEEKDAY]
    return KnowledgeSource(
        name=name,
        domain=spec.domain or name.partition(":")[2],
        split=split,
        tables=tables,
        kinds={table: kinds[table] for table in tables},
        relations=tuple(replace(r, phrase=_phrase(r, spec)) for r in relations),
        starts=starts,
        language=spec.language,
    )


def _relations(
    table: str,
    spec: TableSource,
    kinds: Mapping[str, CellType],
    links: Mapping[tuple[str, str], str],
) -> Iterator[Relation]:
    """A look-up per column and, for each link, what can be asked of the thing linked to."""
    key = spec.tables[table].key
    numbers = [c for c, kind in kinds.items() if kind is CellType.NUMBER]
    for column, kind in list(kinds.items())[1:]:
        other = links.get((table, column), "")
        target = "date" if kind is CellType.DATE else spec.tables[other].key if other else ""
        unit = spec.tables[table].units.get(column, "")
        yield replace(lookup(key, table, column, kind, target), unit=unit)
        if other and column == spec.tables[other].key:
            yield from _groups(table, key, column, numbers)


def _groups(table: str, key: str, link: str, numbers: Sequence[str]) -> Iterator[Relation]:
    """What can be asked of a thing about the rows of ``table`` that link to it.

    How many there are and, for each number that they have, its total and the row with the most.
    """
    yield Relation(
        name=f"{link}.{table}",
        op="count",
        source=link,
        table=table,
        key=link,
        select="",
        phrase=f"the number of {table} of {{x}}",
        kind=CellType.NUMBER,
    )
    for number in numbers:
        words = number.replace("_", " ")
        yield Relation(
            name=f"{link}.total_{number}",
            op="sum",
            source=link,
            table=table,
            key=link,
            select=number,
            phrase=f"the total {words} of the {table} of {{x}}",
            kind=CellType.NUMBER,
        )
        yield Relation(
            name=f"{link}.top_{key}_by_{number}",
            op="argmax",
            source=link,
            table=table,
            key=link,
            select=f"{key}:{number}",
            phrase=f"the top {key} by {words} of {{x}}",
            kind=CellType.ENTITY,
            target=key,
        )


def _phrase(relation: Relation, spec: TableSource) -> str:
    """The stated phrase of a relation, else the one made of its words, in the source's language."""
    if relation.name in spec.phrases:
        return spec.phrases[relation.name]
    if spec.language == "en":
        return relation.phrase
    asked = relation.name.partition(".")[2]
    words = spec.words | {w: t for w, t in WORDS.items() if w not in spec.words}
    thing = words.get(relation.table.removesuffix("s"), relation.table)
    measure = words.get(relation.select.rpartition(":")[2], relation.select)
    if relation.op == "count":
        return f"{{x}}的{words.get(asked, thing)}数量"
    if relation.op == "sum":
        return f"{{x}}的{thing}的{measure}总和"
    if relation.op == "argmax":
        return f"{{x}}的{measure}最大的{thing}"
    calculation = PHRASES.get(relation.name, ("", ""))[0] if not relation.table else ""
    return calculation or f"{{x}}的{words.get(asked, asked)}"
