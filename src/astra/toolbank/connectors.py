"""Every kind of source behind one interface: an asynchronous stream of ``Found``.

One bad source, document, page or server is one rejection, never a stop.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from astra.agent.mcp import ServerEnvironments, ServerError, open_server
from astra.llm.pool import map_bounded
from astra.records.score import Rejection
from astra.settings import RuntimeConfig
from astra.toolbank.documents import parse_document, read_documents
from astra.toolbank.outage import NOT_STARTED
from astra.toolbank.raw import BadDocument, RawServer, RawTool
from astra.toolbank.registries import RegistryError, fetch_listing
from astra.toolbank.sources import DocumentSource, ListingSource, LiveSource, SourceList

MAX_STARTING = 4
"""Servers started or asked at once; each start is a burst of CPU."""


@dataclass(frozen=True)
class Found:
    """What one source gave: raw servers, or the reason why not."""

    servers: tuple[RawServer, ...] = ()
    rejections: tuple[Rejection, ...] = ()


class Connectors:
    """Reads source lists; environments of live servers are built once for all of them."""

    def __init__(
        self, runtime: RuntimeConfig, environments: ServerEnvironments | None = None
    ) -> None:
        self._runtime = runtime
        self._environments = environments
        self.finished = 0
        """Of the lists read so far: servers asked, files and listings read."""

    async def read(self, sources: SourceList) -> AsyncIterator[Found]:
        """Everything that the list names, in its order; documents are read one at a time."""
        listed = map_bounded(sources.live, self._live, self._starting)
        async for found in listed:
            self._finish()
            yield found
        for source in sources.documents:
            async for found in self._asked(read_source(source, self._finish), source.connect):
                yield found
        for listing in sources.listings:
            async for found in self._listing(listing):
                yield found
            self._finish()

    def _finish(self) -> None:
        self.finished += 1

    @property
    def _starting(self) -> int:
        return min(MAX_STARTING, self._runtime.concurrency)

    def _pinned(self) -> ServerEnvironments:
        """Read when the first process is to start: reaching servers needs no pins."""
        if self._environments is None:
            self._environments = ServerEnvironments()
        return self._environments

    async def _live(self, source: LiveSource) -> Found:
        return await self._ask(
            RawServer(
                name=source.name,
                source=source.source,
                tools=(),
                title=source.title,
                description=source.description,
                domain=source.domain,
                licence=source.licence,
                launch=source.launch,
                deterministic=source.deterministic,
                hints=source.hints,
            )
        )

    async def _listing(self, source: ListingSource) -> AsyncIterator[Found]:
        base = RawServer(
            name="listed",
            source=source.url.partition("?")[0],
            tools=(),
            licence=source.licence,
            deterministic=source.deterministic,
        )
        try:
            documents = await fetch_listing(source, self._runtime.request_timeout_s)
        except RegistryError as error:
            yield _rejected(source.url, "listing", str(error))
            return
        pages = (_parsed(source.format, document, base) for document in documents)
        async for found in self._asked(pages, source.connect):
            yield found

    async def _asked(self, pages: Iterator[Found], connect: bool) -> AsyncIterator[Found]:
        """``pages`` with listed servers asked for their tools, or rejected where none are known."""
        for page in pages:
            ready = tuple(raw for raw in page.servers if raw.tools or not _is_listed(raw))
            yield replace(page, servers=ready)
            waiting = [raw for raw in page.servers if not raw.tools and _is_listed(raw)]
            for raw in waiting:
                if raw.obstacle:
                    yield _rejected(raw.source, "listed_without_tools", raw.obstacle)
                elif not connect:
                    detail = "no tools are listed, and `connect` is off"
                    yield _rejected(raw.source, "listed_without_tools", detail)
            asked = [raw for raw in waiting if connect and not raw.obstacle]
            async for found in map_bounded(asked, self._ask, self._starting):
                yield found

    async def _ask(self, server: RawServer) -> Found:
        """``server`` with the tools that it lists itself."""
        assert server.launch is not None
        environments = self._pinned() if server.launch.command else ServerEnvironments(pins={})
        timeout_s = self._runtime.mcp_timeout_s
        try:
            with tempfile.TemporaryDirectory(prefix="astra-mcp-") as folder:
                async with open_server(
                    server.launch, Path(folder), timeout_s, environments
                ) as session:
                    listed = await session.list_tools()
                    title = server.title or session.server_title or session.server_name
                    description = server.description or session.instructions
        except (ServerError, TimeoutError, OSError) as error:
            detail = str(error) or type(error).__name__
            return _rejected(server.name, NOT_STARTED, detail)
        tools = tuple(
            RawTool(
                name=item.get("name"),
                description=item.get("description"),
                parameters=item.get("inputSchema"),
                output=item.get("outputSchema"),
            )
            for item in listed
        )
        found = replace(server, tools=tools, title=title, description=description)
        return Found(servers=(found,))


def read_source(
    source: DocumentSource, on_read: Callable[[], None] = lambda: None
) -> Iterator[Found]:
    """One entry per document of the source's files; ``on_read`` is called after each file."""
    paths = source.files()
    if not paths:
        yield _rejected(source.path, "document", f"no file matches {source.path} in {Path.cwd()}")
    for path in paths:
        base = RawServer(
            name=path.stem,
            source=f"document:{path.as_posix()}",
            tools=(),
            licence=source.licence,
            domain=source.domain,
            deterministic=source.deterministic,
        )
        try:
            for place, document in read_documents(path, source.format):
                here = replace(base, source=f"{base.source}{place}")
                yield _parsed(source.format, document, here)
        except BadDocument as error:
            yield _bad_document(base, source.format, error)
        on_read()


def _parsed(kind: str, document: object, base: RawServer) -> Found:
    try:
        if isinstance(document, BadDocument):
            raise document
        return Found(servers=tuple(parse_document(kind, document, base)))
    except BadDocument as error:
        return _bad_document(base, kind, error)


def _bad_document(base: RawServer, kind: str, error: BadDocument) -> Found:
    detail = f"{error}; correct it or its `format` ({kind}) in the source list"
    return _rejected(base.source.removeprefix("document:"), "document", detail)


def _is_listed(raw: RawServer) -> bool:
    """Whether a listing names the server: without tools it is asked, not filtered."""
    return raw.launch is not None or bool(raw.obstacle)


def _rejected(item: str, reason: str, detail: str) -> Found:
    return Found(rejections=(Rejection(item=item, reason=reason, detail=detail),))
