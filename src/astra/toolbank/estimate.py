"""The asks of stage ``tools``, before they are made, and how many servers there may be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from astra.estimate.asks import Amount, AskForm, ExpectedAsks
from astra.estimate.servers import ServerFacts, facts_of
from astra.records.tool import ToolServer
from astra.toolbank.config import ToolsConfig
from astra.toolbank.connectors import Page, corpus_pages, read_source
from astra.toolbank.domains import DOMAIN, SHOWN_CHARS, DomainLabel
from astra.toolbank.normalise import ServerNormaliser
from astra.toolbank.results import RESULT, ResultGuess
from astra.toolbank.sources import SourceList

LABEL = AskForm(DOMAIN, DomainLabel, 28)
GUESS = AskForm(RESULT, ResultGuess, 1400)
"""Its reply is a schema and an example; not measured."""
TOOLS, DOCUMENT_BYTES, RESULT_BYTES = 8, 480, 900
"""A server of the public MCP and RapidAPI listings, and a guessed result with its schema."""
SIGNATURE_BYTES = 40
"""Name and parameters of one of the server's other tools."""
STATED_BYTES = 200
"""Title and description of a server."""
LABEL_BYTES = 16


def expected_servers(lists: Iterable[SourceList], config: ToolsConfig) -> ServerFacts:
    """The facts of table ``tools`` before it is there.

    Documents are read; live servers are not started and listings not fetched, but guessed, a
    listing at its limit.
    """
    lists = list(lists)
    found = list(_documented(lists, config))
    read = [facts_of([server]) for server in found if server is not None]
    live = sum(len(sources.live) for sources in lists)
    listed = sum(listing.limit for sources in lists for listing in sources.listings)
    unread = live + listed + found.count(None)
    number = len(read) + unread
    tools = sum(one.tools for one in read) + TOOLS * unread
    silent = sum(one.silent for one in read) + TOOLS * unread
    documents = sum(one.documents_bytes for one in read) + TOOLS * DOCUMENT_BYTES * unread
    results = sum(one.tools * one.result_bytes for one in read)
    if config.infer_results:
        results += silent * RESULT_BYTES
    return ServerFacts(
        rows=Amount(number, number, counted=not unread),
        tools=tools / max(number, 1),
        silent=silent / max(number, 1),
        document_bytes=documents / max(tools, 1),
        result_bytes=results / max(tools, 1),
        emulated=1 - live / max(number, 1),
    )


def _documented(lists: Iterable[SourceList], config: ToolsConfig) -> Iterator[ToolServer | None]:
    """The servers of all documents that are kept; None for one that has to be asked for its
    tools."""
    normaliser = ServerNormaliser(config.filters, config.domains.mapping)
    for page, connect in (pair for sources in lists for pair in _pages(sources)):
        if connect:
            yield from [None] * len(page.waiting)
        for raw in page.servers:
            server = normaliser.add(raw)
            normaliser.drain()
            if server is not None:
                yield server


def _pages(sources: SourceList) -> Iterator[tuple[Page, bool]]:
    """What documents and corpora hold, and whether listed servers are asked for their tools."""
    for source in sources.documents:
        yield from ((page, source.connect) for page in read_source(source))
    for corpus in sources.corpora:
        yield from ((page, False) for page in corpus_pages(corpus))


def tool_asks(config: ToolsConfig, servers: ServerFacts) -> list[ExpectedAsks]:
    """The asks of stage ``tools``: a label per server, a guess per silent tool, where wanted."""
    asked: list[ExpectedAsks] = []
    if config.domains.by == "teacher":
        labels = LABEL_BYTES * len(config.domains.labels)
        described = min(SHOWN_CHARS, servers.document_bytes / 2)
        shown = STATED_BYTES + servers.tools * described + labels
        asked.append(LABEL.asked("teacher", config.teacher, servers.rows, shown))
    if config.infer_results:
        shown = STATED_BYTES + servers.tools * SIGNATURE_BYTES + servers.document_bytes
        asks = servers.rows.times(servers.silent)
        asked.append(GUESS.asked("teacher", config.teacher, asks, shown))
    return asked
