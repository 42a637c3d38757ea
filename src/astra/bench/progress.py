"""Progress of a benchmark run: episodes of all checkpoints, counted as an engine ends them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from astra.records.bench import BenchEpisode, EpisodeClass
from astra.rollout.engine import Engine, Sampling, Turn
from astra.stage import Progress


class BenchProgress:
    """One line now and then: episodes so far, time left, those lost to our machinery, whose."""

    def __init__(self, what: str, episodes: int, checkpoints: int) -> None:
        """``episodes`` of each checkpoint."""
        self._lost = Counter[str]()
        self._each = episodes
        self._played = 0
        self._progress = Progress(what, episodes * checkpoints, self._lost)

    def watch(self, name: str, engine: Engine) -> Engine:
        """``engine``, whose ended rows are episodes of checkpoint ``name``."""
        return _Watched(engine, self._progress, name)

    def ended(self, name: str) -> None:
        """One episode of checkpoint ``name`` has ended."""
        self._progress.advance(note=name)

    def played(self, name: str, episodes: Iterable[BenchEpisode]) -> None:
        """A checkpoint is through. Rows that were rolled again are no episodes more."""
        self._lost["infra"] += sum(one.outcome == EpisodeClass.INFRA for one in episodes)
        self._played += 1
        self._progress.reach(self._each * self._played, name)

    def close(self) -> None:
        self._progress.close()


class _Watched:
    def __init__(self, engine: Engine, progress: Progress, name: str) -> None:
        self.max_rows = engine.max_rows
        self.weight_version = engine.weight_version
        self._engine = engine
        self._progress = progress
        self._name = name

    def start(
        self, prompts: Sequence[Sequence[int]], budgets: Sequence[int], sampling: Sampling
    ) -> None:
        self._engine.start(prompts, budgets, sampling)

    def poll(self) -> list[Turn]:
        return self._engine.poll()

    def resume(self, row: int, suffix: Sequence[int], budget: int) -> None:
        self._engine.resume(row, suffix, budget)

    def finish(self, row: int) -> None:
        self._engine.finish(row)
        self._progress.advance(note=self._name)
