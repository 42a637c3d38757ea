"""OpenAI function lists, bare or under ``tools`` or ``functions``: format ``openai``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from astra.toolbank.raw import RawServer, raw_tools


def parse(document: Any, base: RawServer) -> Iterator[RawServer]:
    """One server of all functions. Raises BadDocument where they are no list."""
    items = document
    if isinstance(document, dict):
        items = document.get("tools", document.get("functions"))
    yield replace(base, tools=raw_tools(items))
