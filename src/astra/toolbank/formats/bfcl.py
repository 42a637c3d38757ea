"""Function lists as BFCL writes them, the server as a dotted prefix: format ``bfcl``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from astra.toolbank.raw import RawServer, RawTool, raw_tool


def parse(document: Any, base: RawServer) -> Iterator[RawServer]:
    """One server per dotted prefix; loose functions share a server of the base's name."""
    items = document if isinstance(document, list) else [document]
    flat: list[Any] = []
    for item in items:
        inner = item.get("function") if isinstance(item, dict) else None
        flat += inner if isinstance(inner, list) else [item]
    groups: dict[str, list[RawTool]] = {}
    for item in flat:
        tool = raw_tool(item)
        prefix = tool.name.rpartition(".")[0] if isinstance(tool.name, str) else ""
        groups.setdefault(prefix or base.name, []).append(tool)
    for name, tools in groups.items():
        source = f"{base.source}#{name}" if len(groups) > 1 else base.source
        yield replace(base, name=name, source=source, tools=tuple(tools))
