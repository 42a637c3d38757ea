"""Stage ``tools``: read every source, normalise, filter and label it (ASTRA 3.1)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

from astra.llm.pool import map_bounded
from astra.llm.protocol import Teacher
from astra.records.score import Rejection
from astra.records.tool import ToolServer
from astra.settings import RuntimeConfig
from astra.stage import Progress
from astra.store.metrics import StageMetrics
from astra.toolbank.config import ToolsConfig
from astra.toolbank.connectors import Connectors
from astra.toolbank.domains import label_domain
from astra.toolbank.normalise import ServerNormaliser
from astra.toolbank.sources import load_sources

log = logging.getLogger("astra")


async def collect_servers(
    config: ToolsConfig, runtime: RuntimeConfig, metrics: StageMetrics, teacher: Teacher | None
) -> AsyncIterator[ToolServer]:
    """All servers that survive, one by one: memory does not grow with the sources.

    ``teacher`` labels domains; None where ``domains.by`` is ``text``.
    """
    servers = _normalised(config, runtime, metrics)
    if teacher is not None:
        servers = _labelled(servers, teacher, config.domains.labels, runtime.concurrency, metrics)
    async for server in servers:
        _measure(server, metrics)
        yield server


async def _normalised(
    config: ToolsConfig, runtime: RuntimeConfig, metrics: StageMetrics
) -> AsyncIterator[ToolServer]:
    normaliser = ServerNormaliser(config.filters, config.domains.mapping)
    lists = [load_sources(Path(path)) for path in config.sources]
    progress = Progress("sources", sum(sources.total for sources in lists), metrics.dropped)
    connectors = Connectors(runtime)

    def told() -> None:
        found = f"{metrics.counts['servers_found']} servers, {metrics.counts['tools_found']} tools"
        progress.reach(connectors.finished, found)

    metrics.on_count = told
    for sources in lists:
        async for found in connectors.read(sources):
            for rejection in found.rejections:
                log.warning("dropped %s: %s", rejection.item, rejection.detail)
                metrics.reject(rejection)
            for raw in found.servers:
                metrics.count("servers_found")
                metrics.count("tools_found", len(raw.tools))
                server = normaliser.add(raw)
                for rejection in normaliser.drain():
                    log.info("dropped %s: %s (%s)", *_said(rejection))
                    metrics.reject(rejection)
                if server:
                    yield server
    told()
    progress.close()


async def _labelled(
    servers: AsyncIterator[ToolServer],
    teacher: Teacher,
    labels: tuple[str, ...],
    concurrency: int,
    metrics: StageMetrics,
) -> AsyncIterator[ToolServer]:
    """Servers with the domain that the teacher chose; one it cannot label is a rejection."""

    async def label(server: ToolServer) -> ToolServer | Rejection:
        return await label_domain(server, teacher, labels)

    async for batch in _batches(servers, 4 * concurrency):
        async for outcome in map_bounded(batch, label, concurrency):
            if isinstance(outcome, Rejection):
                log.warning("dropped %s: %s (%s)", *_said(outcome))
                metrics.reject(outcome)
            else:
                yield outcome


async def _batches(
    servers: AsyncIterator[ToolServer], size: int
) -> AsyncIterator[list[ToolServer]]:
    batch: list[ToolServer] = []
    async for server in servers:
        batch.append(server)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _said(rejection: Rejection) -> tuple[str, str, str]:
    return rejection.item, rejection.reason, rejection.detail


def _measure(server: ToolServer, metrics: StageMetrics) -> None:
    metrics.count("servers")
    metrics.count("tools", len(server.tools))
    metrics.count("live_servers", int(server.launch is not None))
    metrics.count("repairs", len(server.repairs))
    metrics.distribution("domains", [server.domain])
    metrics.distribution("tools_per_server", [len(server.tools)])
    metrics.distribution("languages", [server.language])
    metrics.distribution("execution", [server.execution.value])
