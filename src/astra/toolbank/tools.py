"""Stage ``tools``: read every source, normalise, filter and label it (ASTRA 3.1)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from astra.llm.pool import flow
from astra.llm.protocol import Teacher
from astra.records.score import Rejection
from astra.records.tool import ToolServer
from astra.stage import Progress
from astra.store.metrics import StageMetrics
from astra.toolbank.config import ToolsConfig
from astra.toolbank.connectors import Connectors
from astra.toolbank.domains import label_domain
from astra.toolbank.normalise import ServerNormaliser
from astra.toolbank.sources import SourceList

Outcome = ToolServer | Rejection


async def servers(
    lists: Iterable[SourceList],
    connectors: Connectors,
    teacher: Teacher | None,
    config: ToolsConfig,
    open_items: int,
    metrics: StageMetrics,
    progress: Progress,
) -> AsyncGenerator[Outcome, None]:
    """All servers that survive, one by one, and what was dropped of whom.

    ``teacher`` labels domains; None where ``domains.by`` is ``text``.
    """

    async def label(outcome: Outcome) -> list[Outcome]:
        if teacher is None or isinstance(outcome, Rejection):
            return [outcome]
        return [await label_domain(outcome, teacher, config.domains.labels)]

    async with aclosing(_normalised(lists, connectors, config, metrics, progress)) as kept:
        outcomes = flow(kept, label, open_items) if teacher else kept
        async with aclosing(outcomes):
            async for outcome in outcomes:
                yield outcome


async def _normalised(
    lists: Iterable[SourceList],
    connectors: Connectors,
    config: ToolsConfig,
    metrics: StageMetrics,
    progress: Progress,
) -> AsyncGenerator[Outcome, None]:
    normaliser = ServerNormaliser(config.filters, config.domains.mapping)

    def told() -> None:
        counted = (
            f"{metrics.counts['servers_found']} servers, {metrics.counts['tools_found']} tools"
        )
        progress.reach(connectors.finished, counted)

    metrics.on_count = told
    for sources in lists:
        async with aclosing(connectors.read(sources)) as read:
            async for page in read:
                for rejection in page.rejections:
                    yield rejection
                for raw in page.servers:
                    metrics.count("servers_found")
                    metrics.count("tools_found", len(raw.tools))
                    server = normaliser.add(raw)
                    for rejection in normaliser.drain():
                        yield rejection
                    if server:
                        yield server
    told()


def measure(metrics: StageMetrics, server: ToolServer) -> None:
    """Add one server to the stage's counts and distributions."""
    metrics.count("servers")
    metrics.count("tools", len(server.tools))
    metrics.count("live_servers", int(server.launch is not None))
    metrics.count("repairs", len(server.repairs))
    metrics.distribution("domains", [server.domain])
    metrics.distribution("tools_per_server", [len(server.tools)])
    metrics.distribution("languages", [server.language])
    metrics.distribution("execution", [server.execution.value])
