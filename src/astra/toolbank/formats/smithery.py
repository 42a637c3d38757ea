"""Servers of Smithery's registry, saved or read from the web: format ``smithery``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from astra.llm.pool import map_bounded
from astra.records.tool import HttpLaunch
from astra.toolbank.listings import dicts, entries, is_open_address, text
from astra.toolbank.raw import BadDocument, RawServer, raw_tools
from astra.toolbank.registries import MAX_PAGES, Fetch, NotThere, below, servers_of, with_terms
from astra.toolbank.sources import ListingSource

AT_ONCE = 4
"""Most servers whose details are asked for at once."""


def parse(document: Any, base: RawServer) -> Iterator[RawServer]:
    """The servers of a page, of a list or of one server's details, with their recorded tools.

    Raises BadDocument for anything else.
    """
    for entry in entries(document, "servers"):
        name = entry.get("qualifiedName")
        if not isinstance(name, str):
            raise BadDocument("no key `qualifiedName`; expected a server of Smithery's registry")
        listed = replace(
            base.described({**entry, "title": entry.get("displayName")}),
            name=name,
            source=f"smithery:{name}",
        )
        tools = entry.get("tools")
        if isinstance(tools, list) and tools:
            yield replace(listed, tools=raw_tools(tools))
            continue
        launches = (_connection(item) for item in dicts(entry.get("connections")))
        launch = next(filter(None, launches), None)
        obstacle = "" if launch else "neither tools nor an open HTTP connection are listed"
        yield replace(listed, launch=launch, obstacle=obstacle)


def _connection(connection: dict[str, Any]) -> HttpLaunch | None:
    url = text(connection.get("deploymentUrl") or connection.get("url"))
    wanted = connection.get("configSchema")
    if connection.get("type") != "http" or not is_open_address(url):
        return None
    if isinstance(wanted, dict) and wanted.get("required"):
        return None
    return HttpLaunch(url=url if url.rstrip("/").endswith("/mcp") else f"{url.rstrip('/')}/mcp")


async def fetch_documents(source: ListingSource, fetch: Fetch) -> list[Any]:
    """The details of the first ``limit`` servers. Raises RegistryError; never half a listing.

    A server that is listed and gone when its details are asked for is a BadDocument in its place.
    """

    async def detail(name: str) -> Any:
        try:
            return await asyncio.to_thread(fetch, below(source.url, name))
        except NotThere as error:
            return BadDocument(str(error))

    names = await asyncio.to_thread(_names, source, fetch)
    return [document async for document in map_bounded(names, detail, AT_ONCE)]


def _names(source: ListingSource, fetch: Fetch) -> list[str]:
    names: list[str] = []
    for number in range(1, MAX_PAGES + 1):
        page = fetch(with_terms(source.url, page=str(number)))
        servers = servers_of(page, source.url)
        listed = [item.get("qualifiedName") for item in servers if isinstance(item, dict)]
        names += [name for name in listed if isinstance(name, str) and name]
        about = page.get("pagination")
        last = about.get("totalPages") if isinstance(about, dict) else None
        if not servers or len(names) >= source.limit or not isinstance(last, int):
            break
        if number >= last:
            break
    return list(dict.fromkeys(names))[: source.limit]
