"""What a table tells an estimate: how many rows, and means over some of them.

Rows are sorted by hashes, so the first ones are drawn at random. Where a table is not there, a
domain guesses the same facts (its ``estimate.py``).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from astra.estimate.asks import Amount, counted
from astra.records.base import Record, compact_json
from astra.store.tables import count_records, read_records

SAMPLE = 256
"""How many rows of a table are looked at."""
Row = TypeVar("Row", bound=Record)


def mean(numbers: Iterable[float]) -> float:
    """The mean; 0 of nothing."""
    given = list(numbers)
    return fmean(given) if given else 0.0


def size(value: Any) -> int:
    """The bytes of a value as JSON."""
    return len(compact_json(value).encode())


def sample(table: Path, model: type[Row]) -> tuple[Amount, list[Row]]:
    """How many rows a table has, and some of them."""
    return counted(count_records(table)), list(islice(read_records(table, model), SAMPLE))
