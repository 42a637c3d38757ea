"""Stage ``tools``: read every source, normalise, filter and complete it (ASTRA 3.1)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from astra.llm.pool import flow
from astra.llm.protocol import Teacher
from astra.records.score import Rejection
from astra.records.tool import Tool, ToolServer
from astra.stage import Progress
from astra.store.metrics import StageMetrics
from astra.toolbank.config import ToolsConfig
from astra.toolbank.connectors import Connectors
from astra.toolbank.domains import label_domain
from astra.toolbank.normalise import ServerNormaliser
from astra.toolbank.results import infer_results
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

    ``teacher`` is None where the configuration has nothing to ask.
    """

    async def complete(outcome: Outcome) -> list[Outcome]:
        if teacher is None or isinstance(outcome, Rejection):
            return [outcome]
        return await _completed(outcome, teacher, config)

    async with aclosing(_normalised(lists, connectors, config, metrics, progress)) as kept:
        outcomes = flow(kept, complete, open_items) if teacher else kept
        async with aclosing(outcomes):
            async for outcome in outcomes:
                yield outcome


async def _completed(server: ToolServer, teacher: Teacher, config: ToolsConfig) -> list[Outcome]:
    """``server`` with what a teacher tells of it, and the asks that failed.

    Results are inferred last: of a server that gets no label they would be paid for nothing.
    """
    if config.domains.by == "teacher":
        labelled = await label_domain(server, teacher, config.domains.labels)
        if isinstance(labelled, Rejection):
            return [labelled]
        server = labelled
    if not config.infer_results:
        return [server]
    server, failed = await infer_results(server, teacher)
    return [server, *failed]


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
    metrics.distribution("results", map(_result_by, server.tools))
    metrics.distribution("effects", (tool.effect or "unknown" for tool in server.tools))


def _result_by(tool: Tool) -> str:
    if tool.output_schema is not None:
        return "published"
    return "inferred" if tool.inferred else "unknown"
