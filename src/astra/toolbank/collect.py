"""Stage ``tools``: read every source, start live servers, normalise, filter (ASTRA 3.1)."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from astra.agent.mcp import ServerEnvironments, ServerError, open_server
from astra.llm.pool import map_bounded
from astra.records.score import Rejection
from astra.records.tool import ToolServer
from astra.settings import RuntimeConfig
from astra.store.metrics import StageMetrics
from astra.toolbank.config import ToolsConfig
from astra.toolbank.documents import parse_document, read_document
from astra.toolbank.normalise import ServerNormaliser
from astra.toolbank.outage import NOT_STARTED
from astra.toolbank.raw import BadDocument, RawServer, RawTool
from astra.toolbank.sources import DocumentSource, LiveSource, load_sources

log = logging.getLogger("astra")
MAX_STARTING = 4
"""Server processes started at once; each start is a burst of CPU."""


@dataclass(frozen=True)
class Found:
    """What one source gave: raw servers, or the reason why not."""

    servers: tuple[RawServer, ...] = ()
    rejections: tuple[Rejection, ...] = ()


async def collect_servers(
    config: ToolsConfig, runtime: RuntimeConfig, metrics: StageMetrics
) -> list[ToolServer]:
    """All servers that survive. One bad source is one rejection, never a stop."""
    normaliser = ServerNormaliser(config.filters)
    kept: list[ToolServer] = []
    for path in config.sources:
        listed = load_sources(Path(path))
        async for found in _read(listed.live, listed.documents, runtime):
            for rejection in found.rejections:
                log.warning("dropped %s: %s", rejection.item, rejection.detail)
                metrics.reject(rejection)
            for raw in found.servers:
                metrics.count("servers_found")
                metrics.count("tools_found", len(raw.tools))
                server = normaliser.add(raw)
                if server:
                    kept.append(server)
    for rejection in normaliser.rejections:
        log.info("dropped %s: %s (%s)", rejection.item, rejection.reason, rejection.detail)
        metrics.reject(rejection)
    _measure(kept, metrics)
    return kept


async def _read(
    live: tuple[LiveSource, ...], documents: tuple[DocumentSource, ...], runtime: RuntimeConfig
) -> AsyncIterator[Found]:
    environments = ServerEnvironments()

    async def start(source: LiveSource) -> Found:
        return await _list_live(source, environments, runtime.mcp_timeout_s)

    async for found in map_bounded(live, start, min(MAX_STARTING, runtime.concurrency)):
        yield found
    for source in documents:
        for found in read_documents(source):
            yield found


async def _list_live(
    source: LiveSource, environments: ServerEnvironments, timeout_s: float
) -> Found:
    try:
        with tempfile.TemporaryDirectory(prefix="astra-mcp-") as folder:
            async with open_server(source.launch, Path(folder), timeout_s, environments) as session:
                listed = await session.list_tools()
                title = source.title or session.server_title or session.server_name
                description = source.description or session.instructions
    except (ServerError, TimeoutError, OSError) as error:
        detail = str(error) or type(error).__name__
        return Found(rejections=(Rejection(item=source.name, reason=NOT_STARTED, detail=detail),))
    tools = tuple(
        RawTool(
            name=item.get("name"),
            description=item.get("description"),
            parameters=item.get("inputSchema"),
            output=item.get("outputSchema"),
        )
        for item in listed
    )
    server = RawServer(
        name=source.name,
        source=source.source,
        tools=tools,
        title=title,
        description=description,
        domain=source.domain,
        licence=source.licence,
        launch=source.launch,
        deterministic=source.deterministic,
        hints=source.hints,
    )
    return Found(servers=(server,))


def read_documents(source: DocumentSource) -> list[Found]:
    """One entry per document that the source's path or pattern names, in name order."""
    paths = sorted(Path().glob(source.path))
    if not paths:
        detail = f"no file matches {source.path} in {Path.cwd()}"
        return [Found(rejections=(Rejection(item=source.path, reason="document", detail=detail),))]
    return [_read_one(path, source) for path in paths]


def _read_one(path: Path, source: DocumentSource) -> Found:
    base = RawServer(
        name=path.stem,
        source=f"document:{path.as_posix()}",
        tools=(),
        licence=source.licence,
        domain=source.domain,
        deterministic=source.deterministic,
    )
    try:
        return Found(servers=tuple(parse_document(source.format, read_document(path), base)))
    except BadDocument as error:
        detail = f"{error}; correct it or its `format` ({source.format}) in the source list"
        return Found(rejections=(Rejection(item=str(path), reason="document", detail=detail),))


def _measure(servers: list[ToolServer], metrics: StageMetrics) -> None:
    metrics.count("servers", len(servers))
    metrics.count("tools", sum(len(server.tools) for server in servers))
    metrics.count("live_servers", sum(server.launch is not None for server in servers))
    metrics.count("repairs", sum(len(server.repairs) for server in servers))
    metrics.distribution("domains", (server.domain for server in servers))
    metrics.distribution("tools_per_server", (len(server.tools) for server in servers))
    metrics.distribution("languages", (server.language for server in servers))
    metrics.distribution("execution", (server.execution.value for server in servers))
