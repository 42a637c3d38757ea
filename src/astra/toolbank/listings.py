"""Registry listings: servers described by others, with their tools or the address to ask.

A listed server that has no tools carries a ``launch`` where it can be asked for them, or an
``obstacle`` that says why it cannot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from astra.records.tool import HttpLaunch
from astra.toolbank.raw import BadDocument, RawServer, raw_tools

OFFICIAL = "io.modelcontextprotocol.registry/official"


def parse_mcp_registry(document: Any, base: RawServer) -> Iterator[RawServer]:
    """A page of the public MCP registry, or one entry. Entries hold no tools.

    Versions that are not the latest, deprecated and deleted ones are left out.
    """
    for entry in _entries(document, "servers"):
        body = entry.get("server")
        server: dict[str, Any] = body if isinstance(body, dict) else entry
        meta = entry.get("_meta", server.get("_meta"))
        official = meta.get(OFFICIAL) if isinstance(meta, dict) else None
        official = official if isinstance(official, dict) else {}
        status = official.get("status", server.get("status", "active"))
        name = server.get("name")
        if status != "active" or official.get("isLatest") is False or not isinstance(name, str):
            continue
        found = _text(server.get("version"))
        launch = _first(_remote(remote) for remote in _dicts(server.get("remotes")))
        obstacle = "" if launch else _package_obstacle(server)
        listed = replace(
            base.described(server),
            name=name,
            source=f"mcp-registry:{name}" + (f"@{found}" if found else ""),
        )
        yield replace(listed, launch=launch, obstacle=obstacle)


def parse_smithery(document: Any, base: RawServer) -> Iterator[RawServer]:
    """A server of Smithery's registry with its recorded tools, a list of them, or a page."""
    for entry in _entries(document, "servers"):
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
        launch = _first(_connection(item) for item in _dicts(entry.get("connections")))
        obstacle = "" if launch else "neither tools nor an open HTTP connection are listed"
        yield replace(listed, launch=launch, obstacle=obstacle)


def parse_docker(document: Any, base: RawServer) -> Iterator[RawServer]:
    """One server of the docker registry: ``{"server": server.yaml, "tools": tools.json}``.

    A list is a ``tools.json`` by itself.
    """
    if isinstance(document, list):
        document = {"server": {}, "tools": document}
    server = document.get("server") if isinstance(document, dict) else None
    if not isinstance(server, dict):
        raise BadDocument("no key `server`; expected server.yaml with its tools.json")
    about, meta = server.get("about"), server.get("meta")
    about = about if isinstance(about, dict) else {}
    category = meta.get("category") if isinstance(meta, dict) else None
    name = _text(server.get("name")) or base.name
    listed = replace(base.described({**about, "domain": category}), name=name)
    tools = document.get("tools")
    if isinstance(tools, list) and tools:
        yield replace(listed, tools=raw_tools(tools))
        return
    remote = server.get("remote")
    launch = _remote(remote) if isinstance(remote, dict) else None
    obstacle = "" if launch else "no tools are listed (they are found out when the image runs)"
    yield replace(listed, launch=launch, obstacle=obstacle)


def _entries(document: Any, key: str) -> list[dict[str, Any]]:
    if isinstance(document, dict):
        document = document.get(key, [document])
    if not isinstance(document, list):
        raise BadDocument(f"`{key}` is {type(document).__name__}, expected a list")
    return [entry for entry in document if isinstance(entry, dict)]


def _remote(remote: dict[str, Any]) -> HttpLaunch | None:
    """The remote if it speaks streamable HTTP and asks for nothing that is not known."""
    kind = _text(remote.get("type") or remote.get("transport_type"))
    url = _text(remote.get("url"))
    if kind not in ("streamable-http", "streamable", "http") or not _open_address(url):
        return None
    headers = remote.get("headers")
    if isinstance(headers, dict) and headers:  # the docker registry maps names to templates
        return None
    if any(header.get("isRequired") for header in _dicts(headers)):
        return None
    return HttpLaunch(url=url)


def _connection(connection: dict[str, Any]) -> HttpLaunch | None:
    url = _text(connection.get("deploymentUrl") or connection.get("url"))
    wanted = connection.get("configSchema")
    if connection.get("type") != "http" or not _open_address(url):
        return None
    if isinstance(wanted, dict) and wanted.get("required"):
        return None
    return HttpLaunch(url=url if url.rstrip("/").endswith("/mcp") else f"{url.rstrip('/')}/mcp")


def _open_address(url: str) -> bool:
    return url.startswith(("http://", "https://")) and "{" not in url


def _package_obstacle(server: dict[str, Any]) -> str:
    names = [
        f"{_text(item.get('registryType') or item.get('registry_type'))}:"
        f"{_text(item.get('identifier'))}"
        for item in _dicts(server.get("packages"))
    ]
    if names:
        return f"only packages ({', '.join(names[:4])}): pin one in environments.yaml to start it"
    return "no open streamable HTTP address is listed"


def _first(found: Iterator[HttpLaunch | None]) -> HttpLaunch | None:
    return next((launch for launch in found if launch), None)


def _dicts(items: Any) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""
