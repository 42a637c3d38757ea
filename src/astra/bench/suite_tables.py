"""Runs of suites on disk: ``<folder>/<suite>/<checkpoint>.json``, the episodes beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from astra.records.bench import SuiteEpisode, SuiteRun
from astra.store.tables import read_records, write_records

PlayedRun = tuple[SuiteRun, Sequence[SuiteEpisode]]


def write_run(folder: Path, run: SuiteRun, episodes: Sequence[SuiteEpisode]) -> None:
    """Write the ``SuiteRun`` as ``.json`` and its episodes as ``.parquet``."""
    place = folder / run.suite
    place.mkdir(parents=True, exist_ok=True)
    write_records(place / f"{run.checkpoint}.parquet", episodes, SuiteEpisode)
    text = run.model_dump_json(indent=1) + "\n"
    (place / f"{run.checkpoint}.json").write_text(text, encoding="utf-8")


def read_runs(folder: Path) -> list[PlayedRun]:
    """Every run below ``folder``, by suite and checkpoint."""
    return [
        (
            SuiteRun.model_validate_json(path.read_text(encoding="utf-8")),
            list(read_records(path.with_suffix(".parquet"), SuiteEpisode)),
        )
        for path in sorted(folder.glob("*/*.json"))
    ]
