"""Servers of the docker registry, ``server.yaml`` with ``tools.json``: format ``docker``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from astra.toolbank.documents import read_document
from astra.toolbank.listings import remote_launch, text
from astra.toolbank.raw import BadDocument, RawServer, raw_tools


def read(path: Path) -> Any:
    """The document of ``path``; a ``server.yaml`` comes with the ``tools.json`` beside it, if any.

    Raises BadDocument for a file that cannot be read.
    """
    document = read_document(path)
    if path.name != "server.yaml":
        return document
    tools = path.with_name("tools.json")
    return {"server": document, "tools": read_document(tools) if tools.is_file() else []}


def parse(document: Any, base: RawServer) -> Iterator[RawServer]:
    """The server of ``{"server": server.yaml, "tools": tools.json}``, or of a ``tools.json`` alone.

    Raises BadDocument for anything else.
    """
    if isinstance(document, list):
        document = {"server": {}, "tools": document}
    server = document.get("server") if isinstance(document, dict) else None
    if not isinstance(server, dict):
        raise BadDocument("no key `server`; expected server.yaml with its tools.json")
    about, meta = server.get("about"), server.get("meta")
    about = about if isinstance(about, dict) else {}
    category = meta.get("category") if isinstance(meta, dict) else None
    name = text(server.get("name")) or base.name
    listed = replace(base.described({**about, "domain": category}), name=name)
    tools = document.get("tools")
    if isinstance(tools, list) and tools:
        yield replace(listed, tools=raw_tools(tools))
        return
    remote = server.get("remote")
    launch = remote_launch(remote) if isinstance(remote, dict) else None
    obstacle = "" if launch else "no tools are listed (they are found out when the image runs)"
    yield replace(listed, launch=launch, obstacle=obstacle)
