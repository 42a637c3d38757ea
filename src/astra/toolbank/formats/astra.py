"""Server rows of the ASTRA release: format ``astra``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from astra.toolbank.raw import BadDocument, RawServer, raw_tools


def parse(document: Any, base: RawServer) -> Iterator[RawServer]:
    """One server per row: ``base_info.group_info`` with ``base_info.tool_list``.

    Rows of its later stages keep them under ``mcp_info``. ``call_info`` is not read: it holds
    addresses and keys. Raises BadDocument at the first row without tools.
    """
    for index, row in enumerate(document if isinstance(document, list) else [document]):
        row = row.get("mcp_info", row) if isinstance(row, dict) else None
        info = row.get("base_info") if isinstance(row, dict) else None
        if not isinstance(info, dict) or "tool_list" not in info:
            raise BadDocument(f"row {index}: no base_info.tool_list")
        group = info.get("group_info")
        group = group if isinstance(group, dict) else {}
        name = group.get("server_name") or group.get("server_title") or base.name
        yield replace(
            base.described(group),
            name=str(name),
            source=f"{base.source}#{index}",
            tools=raw_tools(info["tool_list"]),
        )
