"""Reads every kind of source through one interface: an asynchronous stream of ``Page``.

One bad source, document, page or server is one rejection, never a stop.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from astra.agent.mcp import open_server
from astra.agent.server_environments import ServerEnvironments, ServerError
from astra.agent.walls import ServerWalls
from astra.llm.pool import map_bounded
from astra.records.score import Rejection
from astra.settings import RuntimeConfig
from astra.toolbank.clean import storable
from astra.toolbank.corpora import read_corpus
from astra.toolbank.documents import parsed_servers, read_documents
from astra.toolbank.outage import LISTED_SILENT, NOT_STARTED
from astra.toolbank.raw import BadDocument, RawServer, raw_tools
from astra.toolbank.registries import RegistryError, fetch_listing
from astra.toolbank.sources import (
    CorpusSource,
    DocumentSource,
    ListingSource,
    LiveSource,
    SourceList,
)

log = logging.getLogger("astra")
MAX_STARTING = 4
"""Servers started or asked at once; each start is a burst of CPU."""


@dataclass(frozen=True)
class Page:
    """What one document, listing page or live server gave: raw servers, or the reason why not."""

    servers: Iterable[RawServer] = ()
    rejections: tuple[Rejection, ...] = ()
    waiting: tuple[RawServer, ...] = ()
    """Servers listed without tools: they are asked for them, or rejected."""


@dataclass(frozen=True)
class Parsed:
    """The servers of one document, parsed anew each time: a catalogue makes up thousands."""

    kind: str
    document: Any
    base: RawServer

    def __iter__(self) -> Iterator[RawServer]:
        servers = parsed_servers(self.kind, self.document, self.base)
        return (raw for raw in servers if not _is_waiting(raw))


class Connectors:
    """Reads source lists; live servers start behind ``walls``, their environments built once."""

    def __init__(
        self,
        runtime: RuntimeConfig,
        walls: ServerWalls,
        environments: ServerEnvironments | None = None,
    ) -> None:
        self._runtime = runtime
        self._walls = walls
        self._environments = environments
        self.finished = 0
        """How many servers were asked, files and listings read so far."""

    async def read(self, sources: SourceList) -> AsyncGenerator[Page, None]:
        """Everything that the list names, in its order; documents are read one at a time."""
        async with aclosing(map_bounded(sources.live, self._live, self._starting)) as live:
            async for page in live:
                self._finish()
                yield page
        for source in sources.documents:
            pages = read_source(source, self._finish)
            async with aclosing(self._asked(pages, source.connect)) as asked:
                async for page in asked:
                    yield page
        for corpus in sources.corpora:
            for page in corpus_pages(corpus):
                yield page
            self._finish()
        for listing in sources.listings:
            async with aclosing(self._listing(listing)) as listed:
                async for page in listed:
                    yield page
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

    async def _live(self, source: LiveSource) -> Page:
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
            ),
            NOT_STARTED,
        )

    async def _listing(self, source: ListingSource) -> AsyncGenerator[Page, None]:
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
        async with aclosing(self._asked(pages, source.connect)) as asked:
            async for page in asked:
                yield page

    async def _asked(self, pages: Iterator[Page], connect: bool) -> AsyncGenerator[Page, None]:
        """``pages`` with listed servers asked for their tools, or rejected where none are known."""
        for page in pages:
            yield replace(page, waiting=())
            for raw in page.waiting:
                if raw.obstacle:
                    yield _rejected(raw.source, "listed_without_tools", raw.obstacle)
                elif not connect:
                    detail = "no tools are listed, and `connect` is off"
                    yield _rejected(raw.source, "listed_without_tools", detail)
            asked = [raw for raw in page.waiting if connect and not raw.obstacle]
            ask = partial(self._ask, reason=LISTED_SILENT)
            async with aclosing(map_bounded(asked, ask, self._starting)) as answers:
                async for answer in answers:
                    yield answer

    async def _ask(self, server: RawServer, reason: str) -> Page:
        """``server`` with the tools that it lists itself, or its rejection for ``reason``."""
        assert server.launch is not None
        environments = self._pinned() if server.launch.command else ServerEnvironments(pins={})
        timeout_s = self._runtime.mcp_timeout_s
        try:
            with tempfile.TemporaryDirectory(prefix="astra-mcp-") as folder:
                async with open_server(
                    server.launch, Path(folder), timeout_s, environments, self._walls
                ) as session:
                    listed = await session.list_tools()
                    title = server.title or session.server_title or session.server_name
                    description = server.description or session.instructions
        except (ServerError, TimeoutError, OSError) as error:
            kind = type(error).__name__
            return _rejected(server.name, reason, kind, str(error) or kind)
        answered = replace(server, tools=raw_tools(listed), title=title, description=description)
        return Page(servers=(answered,))


def read_source(
    source: DocumentSource, on_read: Callable[[], None] = lambda: None
) -> Iterator[Page]:
    """One entry per document of the source's files; ``on_read`` is called after each file."""
    paths = source.files()
    if not paths:
        detail = f"no file matches {source.path}"
        yield _rejected(source.path, "document", detail, f"{detail} in {Path.cwd()}")
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


def corpus_pages(corpus: CorpusSource) -> Iterator[Page]:
    """One entry per document of a fetched corpus. Raises CorpusError if it is not there."""
    for name, document in read_corpus(corpus):
        base = RawServer(
            name=PurePosixPath(name).name.partition(".")[0],
            source=f"{corpus.package}#{name}",
            tools=(),
            licence=corpus.documents_licence,
        )
        try:
            if isinstance(document, BadDocument):
                raise document
            # Kept, not parsed anew: such a document describes one service.
            yield Page(servers=tuple(parsed_servers(corpus.format, document, base)))
        except BadDocument as error:
            yield _bad_document(base, corpus.format, error)


def _parsed(kind: str, document: object, base: RawServer) -> Page:
    try:
        if isinstance(document, BadDocument):
            raise document
        # Looked through to its end first: nothing is taken of a document that ends badly.
        servers = parsed_servers(kind, document, base)
        waiting = tuple(raw for raw in servers if _is_waiting(raw))
    except BadDocument as error:
        return _bad_document(base, kind, error)
    return Page(servers=Parsed(kind, document, base), waiting=waiting)


def _bad_document(base: RawServer, kind: str, error: BadDocument) -> Page:
    detail = f"{error}; correct it or its `format` ({kind}) in the source list"
    return _rejected(base.source.removeprefix("document:"), "document", detail)


def _is_waiting(raw: RawServer) -> bool:
    """Whether a listing names the server without tools: it is asked for them, not filtered."""
    return not raw.tools and (raw.launch is not None or bool(raw.obstacle))


def _rejected(item: str, reason: str, detail: str, said: str = "") -> Page:
    """``said`` is what the log tells besides: places and times, which no record may hold."""
    log.warning("dropped %s: %s", item, said or detail)
    rejection = Rejection(item=storable(item), reason=reason, detail=storable(detail))
    return Page(rejections=(rejection,))
