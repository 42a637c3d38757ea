"""Suites of single questions: reads their problems from the hub or a file, for one caged driver.

Problem texts belong to others and are never committed: they are read when a suite starts, written
to the cache as the driver's input, and known in records by their ids.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from astra.bench.harness.environment import caged_driver
from astra.bench.harness.protocol import DriverProcess, SuiteError
from astra.records.base import Frozen, canonical_json, content_id
from astra.settings import StageConfig
from astra.store.paths import cache_root
from astra.store.replacing import replacing


class QuestionSource(StageConfig):
    """Where problems come from: ``file`` if there is one, else the hub's dataset."""

    file: str | None = None
    """JSON, JSON lines, CSV or parquet."""
    dataset: str = ""
    config: str | None = None
    split: str = "train"
    revision: str | None = None


class Question(Frozen):
    id: str
    category: str
    prompt: str
    gold: str
    kind: Literal["math", "choice"]


def read_rows(source: QuestionSource) -> list[dict[str, Any]]:
    """The rows as they are. Raises SuiteError saying what to supply."""
    if source.file is not None:
        path = Path(source.file)
        try:
            return _read_file(path)
        except (OSError, ValueError) as error:
            raise SuiteError(f"problems cannot be read from {path}: {error}") from error
    try:
        import datasets

        loaded = datasets.load_dataset(
            source.dataset, source.config, split=source.split, revision=source.revision
        )
        return [dict(row) for row in loaded]
    except Exception as error:
        # Whatever the hub library raises: no network, no licence accepted, no such set.
        raise SuiteError(
            f"problems cannot be loaded from the hub ({source.dataset}): "
            f"{type(error).__name__}: {error}; download them where there is network and give "
            "options.source.file, or set HF_TOKEN where the set wants its terms accepted"
        ) from error


def _read_file(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.read_table(path).to_pylist()
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".csv":
        return [dict(row) for row in csv.DictReader(text.splitlines(keepends=True))]
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    else:
        rows = json.loads(text)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("it must hold a list of objects")
    return rows


def field(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """The first of ``names`` that the row has, whatever its case. Raises SuiteError."""
    folded = {key.casefold(): value for key, value in row.items()}
    for name in names:
        value = folded.get(name.casefold())
        if value is not None and str(value).strip():
            return str(value).strip()
    raise SuiteError(f"a problem has none of the columns {list(names)}; it has {sorted(row)}")


def questions_driver(name: str, questions: Iterable[Question]) -> DriverProcess:
    """The driver of prepared questions: caged, since what checks answers parses a model's text."""
    lines = [canonical_json(one.model_dump(mode="json")) for one in questions]
    if not lines:
        raise SuiteError(f"suite {name} has no problems")
    path = cache_root() / "suites" / f"{name}-{content_id(lines)}.jsonl"
    with replacing(path) as partial:
        partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
    driver = caged_driver("questions", QUESTIONS=str(path.resolve()))
    return replace(driver, reads=(*driver.reads, path.resolve()))
