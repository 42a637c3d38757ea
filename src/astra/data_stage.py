"""What the data stages share: a stream of records and rejections becomes tables and metrics.

A data stage is a pipeline per item (a server, a question, a sub-question, a group to merge). Its
domain yields what came of each item, in the items' order. ``DataStage.write`` sends each record
to ``data/<table>.parquet`` and each rejection to ``data/rejected/<stage>.parquet``, counts and
measures them, and says in one last line how many items came in, what was kept and what was
dropped. The stage ends in one place, whatever happened: ``data_stage``.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

from astra.estimate.asks import ExpectedAsks, costs, online_models
from astra.estimate.told import stage_lines
from astra.llm.build import Teachers, teachers_replaced
from astra.llm.pool import placement
from astra.llm.protocol import ModelConfig, OfflineHandlers, Teacher
from astra.records.base import Record
from astra.records.score import Rejection
from astra.settings import Config
from astra.stage import Stage, user_errors
from astra.store.metrics import StageMetrics
from astra.store.shelf import Shelf
from astra.store.tables import TableWriter, count_records, read_records
from astra.tracking.mlflow import Run

if TYPE_CHECKING:
    from astra.llm.policy import EndpointPolicy
    from astra.workers.worker import Shift

log = logging.getLogger("astra")
DATA = Path("data")
REJECTED = DATA / "rejected"
OPEN_PER_PLACE = 2
"""How many items are open at once per request in flight: some wait for a sandbox or a sibling."""
LOGGED_EACH = 3
"""How many drops of each reason are logged; the table has all."""
LOGGED_CHARS = 300
"""How much of a rejection's detail is logged; the table has all of it but the addresses of
endpoints."""
_RESOLVED = re.compile(r"(?<=Connect call failed) \([^)]*\)?")
"""An address that a host's name stood for, in the HTTP client's words."""

RecordType = TypeVar("RecordType", bound=Record)


class DataStage(Stage[Config]):
    """A stage that makes tables; ``data_stage`` opens one."""

    def __init__(self, name: str, model: type[Config]) -> None:
        super().__init__(name, model)
        self.teachers = Teachers(self.runtime, name, self.reporter)
        self.ends.callback(self.teachers.track)
        self.ends.callback(self.teachers.close)
        if self.runtime.stage_workers and placement() is None and not teachers_replaced():
            self._have_workers()
        self.rejected = self.enter(TableWriter(self.rejected_table, Rejection))
        self._repeats: dict[str, int] = {}
        """The last ``repeat`` given out, by the id of the first of several equal rejections."""

    def _have_workers(self) -> None:
        """Let workers have the items of sharded flows, and one desk serve all asks."""
        # Late: only who asks for workers needs them.
        from astra.workers.crew import Crew

        self.enter(
            Crew(self.name, self.config, self.runtime, self.metrics, self.teachers, self.reporter)
        )

    @property
    def rejected_table(self) -> Path:
        """Where the stage's rejections are written."""
        return REJECTED / f"{self.name}.parquet"

    @property
    def open_items(self) -> int:
        """How many items a flow keeps open, so that every place in flight is used."""
        return OPEN_PER_PLACE * self.runtime.concurrency

    def teacher(self, config: ModelConfig, handlers: OfflineHandlers) -> Teacher:
        """See ``Teachers.teacher``."""
        return self.teachers.teacher(config, handlers)

    def panel(self, models: Iterable[ModelConfig], handlers: OfflineHandlers) -> list[Teacher]:
        """See ``Teachers.panel``."""
        return self.teachers.panel(models, handlers)

    def policy(self, config: ModelConfig) -> EndpointPolicy:
        """See ``Teachers.policy``."""
        return self.teachers.policy(config)

    def expect(self, asks: Callable[[], Iterable[ExpectedAsks]]) -> None:
        """Log what is to be asked of models, and which caps hold; nothing where rules answer."""
        if online_models(self.config.model_dump()):
            expected = costs(asks(), self.runtime.prices)
            for line in stage_lines(expected, self.runtime.budget):
                log.info("%s", line)

    def table(self, name: str) -> Path:
        """Where the table of a stage lies."""
        return DATA / f"{name}.parquet"

    def read(self, table: str, model: type[RecordType]) -> Iterator[RecordType]:
        """Stream another stage's table in id order."""
        return read_records(self.table(table), model)

    def count(self, table: str) -> int:
        """The rows of another stage's table."""
        return count_records(self.table(table))

    def shelf(
        self, table: str, model: type[RecordType], key: Callable[[RecordType], str]
    ) -> Shelf[RecordType]:
        """Another stage's table, to be looked up by ``key``; on disk, closed with the stage."""
        return self.enter(Shelf(model, key, self.read(table, model)))

    def write(
        self,
        outcomes: AsyncGenerator[Record, None],
        model: type[RecordType],
        measure: Callable[[StageMetrics, RecordType], None] | None = None,
        beside: dict[str, type[Record]] | None = None,
    ) -> int:
        """Run the flow: rejections go to their table, records of ``model`` to the stage's.

        ``beside`` names further tables and the record each holds. ``measure`` sees the records
        of ``model`` in the flow's order. Returns the rows of the stage's table, and logs them
        beside the number of items and the drops by reason. If the flow fails or is interrupted,
        what it has open ends first and no table is replaced.
        """
        tables = {self.name: model, **(beside or {})}
        with ExitStack() as spooled:
            writers: dict[type[Record], TableWriter[Any]] = {
                kind: spooled.enter_context(TableWriter(self.table(name), kind))
                for name, kind in tables.items()
            }
            with asyncio.Runner() as runner:
                runner.run(self._drain(outcomes, writers, model, measure))
            rows = {kind: writer.commit() for kind, writer in writers.items()}
        kept = [f"{rows[kind]} rows in {self.table(name)}" for name, kind in tables.items()]
        for progress in list(self.reporter.open):
            progress.close(", ".join(kept))
        return rows[model]

    async def _drain(
        self,
        outcomes: AsyncGenerator[Record, None],
        writers: dict[type[Record], TableWriter[Any]],
        model: type[RecordType],
        measure: Callable[[StageMetrics, RecordType], None] | None,
    ) -> None:
        # Closed here, in the loop: an interrupt cancels this task, and what is open ends first.
        async with aclosing(outcomes):
            async for outcome in outcomes:
                if isinstance(outcome, Rejection):
                    self.reject(outcome)
                    continue
                writers[type(outcome)].add(outcome)
                if measure is not None and isinstance(outcome, model):
                    measure(self.metrics, outcome)

    def reject(self, rejection: Rejection) -> None:
        """Write a rejection to the stage's table of rejections and count it by reason.

        The first few of each reason are logged as well.
        """
        if rejection.final and self.metrics.dropped[rejection.reason] < LOGGED_EACH:
            place = f"{rejection.item} {rejection.part}".strip()
            log.info(
                "dropped (%s): %s %s", rejection.reason, place, rejection.detail[:LOGGED_CHARS]
            )
        self.metrics.reject(rejection)
        fields = rejection.model_dump(exclude={"id", "repeat"})
        fields["detail"] = self._without_addresses(rejection.detail)
        first = Rejection(**fields, repeat=rejection.repeat)
        if self.rejected.add(first):
            return
        # Numbered on from the last equal one: trying every number again would take a time that
        # grows with the square of how many are equal.
        repeat = self._repeats.get(first.id, first.repeat) + 1
        while not self.rejected.add(Rejection(**fields, repeat=repeat)):
            repeat += 1
        self._repeats[first.id] = repeat

    def _without_addresses(self, detail: str) -> str:
        """``detail`` without the addresses of endpoints, which differ from machine to machine."""
        for url in (endpoint.base_url for endpoint in self.runtime.endpoints):
            if url in detail:
                detail = detail.replace(url, "endpoint").replace(urlsplit(url).netloc, "endpoint")
                detail = _RESOLVED.sub("", detail)
        return detail


class WorkerStage(DataStage[Config]):
    """A data stage in a worker: it works on the items it is sent and writes nothing."""

    def __init__(self, name: str, model: type[Config], shift: Shift) -> None:
        from astra.workers.worker import ItemMetrics

        super().__init__(name, model)
        self.runtime = shift.order.runtime
        self.metrics = ItemMetrics(name)
        self.teachers = Teachers(self.runtime, name, self.reporter)
        self._shift = shift

    def expect(self, asks: Callable[[], Iterable[ExpectedAsks]]) -> None:
        """Nothing: the owner says it."""

    def track(self, inputs: Mapping[str, str]) -> Run:
        """A run that logs nothing: the owner has the stage's."""
        return Run(None, "", "")

    def write(
        self,
        outcomes: AsyncGenerator[Record, None],
        model: type[RecordType],
        measure: Callable[[StageMetrics, RecordType], None] | None = None,
        beside: dict[str, type[Record]] | None = None,
    ) -> int:
        """Work on items until the owner has no more. Raises Relieved then."""
        self._shift.serve(outcomes, self.teachers.usages)
        return 0


@contextmanager
def data_stage(name: str, model: type[Config]) -> Generator[DataStage[Config]]:
    """Open a data stage. Its metrics and ``data/rejected/<name>.parquet`` are written at its end.

    After an error for the user the rejections so far are written too: they may say why. In a
    worker nothing is written.
    """
    where = placement()
    if where is not None and where.idle:
        worker = WorkerStage(name, model, cast("Shift", where))
        with worker.ends:
            yield worker
        return
    stage = DataStage(name, model)
    with stage.ends:
        try:
            yield stage
        except Exception as error:
            if user_errors(error):
                stage.rejected.commit()
            raise
        stage.rejected.commit()
        stage.metrics.write()
