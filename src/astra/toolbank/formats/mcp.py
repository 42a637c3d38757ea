"""Recorded MCP ``tools/list`` results, lists of them, and maps of servers: format ``mcp``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from astra.toolbank.raw import BadDocument, RawServer, raw_tools


def parse(document: Any, base: RawServer) -> Iterator[RawServer]:
    """The servers of a document. Raises BadDocument where no tools are listed."""
    if isinstance(document, list):
        if any(isinstance(item, dict) and "tools" in item for item in document):
            for index, item in enumerate(document):
                if isinstance(item, dict):
                    yield from parse(item, replace(base, source=f"{base.source}#{index}"))
            return
        yield replace(base, tools=raw_tools(document))
        return
    if not isinstance(document, dict):
        raise BadDocument("expected an object or a list")
    if isinstance(document.get("result"), dict):
        document = document["result"]
    if "tools" in document:
        about = document.get("server", document)
        name = about.get("name") or about.get("server_name") if isinstance(about, dict) else None
        named = replace(base, name=name if isinstance(name, str) and name else base.name)
        stated = about.get("source") if isinstance(about, dict) else None
        yield replace(
            named.described(about),
            source=stated if isinstance(stated, str) and stated else base.source,
            tools=raw_tools(document["tools"]),
        )
        return
    entries = {key: item for key, item in document.items() if isinstance(item, dict)}
    if not entries or not all("tools" in item for item in entries.values()):
        raise BadDocument("no key `tools`; expected a tools/list result")
    for key, item in entries.items():
        yield from parse(item, replace(base, name=key, source=f"{base.source}#{key}"))
