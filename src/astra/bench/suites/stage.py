"""The external suites of stage ``bench``: every checkpoint, every configured suite."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from astra.bench.references import FLOOR
from astra.bench.suites.protocol import Serving, Subject, SuiteConfig, SuiteError
from astra.bench.suites.run import run_suite
from astra.bench.suites.scripted import ScriptedServer, idle
from astra.records.bench import SuiteEpisode, SuiteRun
from astra.store.tables import write_records

FOLDER = Path("data/suites")


def play_suites(
    suites: Sequence[SuiteConfig],
    serving: Serving,
    checkpoints: Sequence[str],
    folder: Path = FOLDER,
) -> list[SuiteRun]:
    """``<folder>/<suite>/<checkpoint>.parquet`` with the episodes and ``.json`` beside it with
    the ``SuiteRun``. A model that does nothing comes first: its scores are the suite's floor.

    A checkpoint is served once for all its suites. Raises SuiteError for the first run that
    fails; what the runs have finished by then is in the journal.
    """
    labels = [config.suite for config in suites]
    if len(set(labels)) < len(labels):
        raise SuiteError(f"bench.suites uses a label twice: {labels}; give each setting its own")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    runs: list[SuiteRun] = []
    if not suites:
        return runs
    for checkpoint in (FLOOR, *checkpoints):
        with floor() if checkpoint == FLOOR else serving(checkpoint) as subject:
            for config in suites:
                run, episodes = run_suite(config, subject)
                write_run(folder, run, episodes)
                runs.append(run)
    return runs


@contextmanager
def floor() -> Generator[Subject]:
    """A model that calls nothing and says "Done."."""
    with ScriptedServer(idle, model="idle") as server:
        yield Subject(FLOOR, server.endpoint, identity="idle")


def write_run(folder: Path, run: SuiteRun, episodes: Sequence[SuiteEpisode]) -> None:
    place = folder / run.suite
    place.mkdir(parents=True, exist_ok=True)
    write_records(place / f"{run.checkpoint}.parquet", episodes, SuiteEpisode)
    text = run.model_dump_json(indent=1) + "\n"
    (place / f"{run.checkpoint}.json").write_text(text, encoding="utf-8")
