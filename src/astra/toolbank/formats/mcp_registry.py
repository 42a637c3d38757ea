"""Pages of the public MCP registry, saved or read from the web: format ``mcp_registry``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from astra.toolbank.listings import dicts, entries, remote_launch, text
from astra.toolbank.raw import RawServer
from astra.toolbank.registries import MAX_PAGES, Fetch, RegistryError, servers_of, with_terms
from astra.toolbank.sources import ListingSource

OFFICIAL = "io.modelcontextprotocol.registry/official"


def parse(document: Any, base: RawServer) -> Iterator[RawServer]:
    """A page of the public MCP registry, or one entry. Entries hold no tools.

    Versions that are not the latest, deprecated and deleted ones are left out.
    """
    for entry in entries(document, "servers"):
        body = entry.get("server")
        server: dict[str, Any] = body if isinstance(body, dict) else entry
        meta = entry.get("_meta", server.get("_meta"))
        official = meta.get(OFFICIAL) if isinstance(meta, dict) else None
        official = official if isinstance(official, dict) else {}
        status = official.get("status", server.get("status", "active"))
        name = server.get("name")
        if status != "active" or official.get("isLatest") is False or not isinstance(name, str):
            continue
        version = text(server.get("version"))
        launches = (remote_launch(remote) for remote in dicts(server.get("remotes")))
        launch = next(filter(None, launches), None)
        obstacle = "" if launch else _package_obstacle(server)
        listed = replace(
            base.described(server),
            name=name,
            source=f"mcp-registry:{name}" + (f"@{version}" if version else ""),
        )
        yield replace(listed, launch=launch, obstacle=obstacle)


def _package_obstacle(server: dict[str, Any]) -> str:
    names = [
        f"{text(item.get('registryType') or item.get('registry_type'))}:"
        f"{text(item.get('identifier'))}"
        for item in dicts(server.get("packages"))
    ]
    if names:
        return f"only packages ({', '.join(names[:4])}): pin one in environments.yaml to start it"
    return "no open streamable HTTP address is listed"


async def fetch_documents(source: ListingSource, fetch: Fetch) -> list[Any]:
    """The pages of the first ``limit`` servers. Raises RegistryError; never half a listing."""
    return await asyncio.to_thread(_pages, source, fetch)


def _pages(source: ListingSource, fetch: Fetch) -> list[Any]:
    pages: list[Any] = []
    seen: set[str] = set()
    read = 0
    url = source.url
    for _ in range(MAX_PAGES):
        page = fetch(url)
        servers = servers_of(page, url)
        pages.append({**page, "servers": servers[: source.limit - read]})
        read += len(servers)
        meta = page.get("metadata")
        meta = meta if isinstance(meta, dict) else {}
        cursor = meta.get("nextCursor") or meta.get("next_cursor")
        if not isinstance(cursor, str) or not servers or read >= source.limit:
            return pages
        if cursor in seen:
            raise RegistryError(f"{source.url} repeats the cursor {cursor[:80]!r}")
        seen.add(cursor)
        url = with_terms(source.url, cursor=cursor)
    raise RegistryError(f"{source.url} has more than {MAX_PAGES} pages")
