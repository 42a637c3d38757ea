"""The external suites of stage ``bench``: every checkpoint, every configured suite."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from astra.bench.config import BenchConfig
from astra.bench.harness.play import checked, run_suite
from astra.bench.harness.protocol import Serving, Subject, SuiteConfig, SuiteError
from astra.bench.harness.served import RunningEndpoints, ServedCheckpoints, WithFloor
from astra.bench.summary import FLOOR, run_metrics
from astra.records.bench import SuiteEpisode, SuiteRun
from astra.settings import RuntimeConfig
from astra.store.tables import write_records
from astra.tracking.mlflow import Run, digests, track

Tracked = Callable[[str], AbstractContextManager[Run]]


class Checkpoints:
    """``Serving`` of the stage: a server that runs already where conf names one, else ours."""

    def __init__(
        self, config: BenchConfig, runtime: RuntimeConfig, trained: Mapping[str, Path]
    ) -> None:
        self._config, self._runtime, self._trained = config, runtime, trained
        self._served = ServedCheckpoints.of(config.policy, trained, config.serving, runtime)
        self._running = RunningEndpoints(config.endpoints)
        self._endpoints = config.endpoints
        self.names = list(dict.fromkeys([FLOOR, *self._served.configs, *config.endpoints]))
        """The floor first, then base and what was trained from it, then baselines."""

    def __call__(self, checkpoint: str) -> AbstractContextManager[Subject]:
        serving = self._running if checkpoint in self._endpoints else self._served
        return WithFloor(serving)(checkpoint)

    def tracked(self, checkpoint: str) -> AbstractContextManager[Run]:
        """The MLflow run that a checkpoint's suites are logged to."""
        trained = [self._trained[checkpoint]] if checkpoint in self._trained else []
        part = f"{checkpoint}/suites"
        return track("bench", self._config, digests(*trained), self._runtime, part=part)


def check_suites(suites: Sequence[SuiteConfig]) -> None:
    """Raises AstraError for what could not be played; called before the arenas are."""
    labels = [config.suite for config in suites]
    if len(set(labels)) < len(labels):
        raise SuiteError(f"bench.suites uses a label twice: {labels}; give each setting its own")
    for config in suites:
        checked(config)


def play_suites(
    suites: Sequence[SuiteConfig],
    serving: Serving,
    checkpoints: Sequence[str],
    folder: Path,
    tracked: Tracked,
) -> list[SuiteRun]:
    """``<folder>/<suite>/<checkpoint>.parquet`` with the episodes and ``.json`` beside it with
    the ``SuiteRun``. A checkpoint is served once for all its suites and has one run of
    ``tracked``. Raises SuiteError for the first run that fails; what the runs have finished by
    then is in the journal.
    """
    check_suites(suites)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    runs: list[SuiteRun] = []
    for checkpoint in checkpoints if suites else ():
        with tracked(checkpoint) as log, serving(checkpoint) as subject:
            log.tags(checkpoint=checkpoint, suites=" ".join(one.suite for one in suites))
            for config in suites:
                run, episodes = run_suite(config, subject)
                write_run(folder, run, episodes)
                log.metrics(run_metrics(run, episodes), step=0)
                runs.append(run)
    return runs


def write_run(folder: Path, run: SuiteRun, episodes: Sequence[SuiteEpisode]) -> None:
    place = folder / run.suite
    place.mkdir(parents=True, exist_ok=True)
    write_records(place / f"{run.checkpoint}.parquet", episodes, SuiteEpisode)
    text = run.model_dump_json(indent=1) + "\n"
    (place / f"{run.checkpoint}.json").write_text(text, encoding="utf-8")
