"""What formats of registry listings share: entries, and the addresses where servers can be asked.

A listed server that has no tools carries a ``launch`` where it can be asked for them, or an
``obstacle`` that says why it cannot.
"""

from __future__ import annotations

from typing import Any

from astra.records.tool import HttpLaunch
from astra.toolbank.raw import BadDocument


def entries(document: Any, key: str) -> list[dict[str, Any]]:
    """The entries of a page under ``key``, of a list, or the document itself as the only one.

    Raises BadDocument if ``key`` holds no list.
    """
    if isinstance(document, dict):
        document = document.get(key, [document])
    if not isinstance(document, list):
        raise BadDocument(f"`{key}` is {type(document).__name__}, expected a list")
    return [entry for entry in document if isinstance(entry, dict)]


def remote_launch(remote: dict[str, Any]) -> HttpLaunch | None:
    """The remote if it speaks streamable HTTP and asks for nothing that is not known."""
    kind = text(remote.get("type") or remote.get("transport_type"))
    url = text(remote.get("url"))
    if kind not in ("streamable-http", "streamable", "http") or not is_open_address(url):
        return None
    headers = remote.get("headers")
    if isinstance(headers, dict) and headers:  # the docker registry maps names to templates
        return None
    if any(header.get("isRequired") for header in dicts(headers)):
        return None
    return HttpLaunch(url=url)


def is_open_address(url: str) -> bool:
    """Whether an HTTP address is complete: no part of it is for the user to fill in."""
    return url.startswith(("http://", "https://")) and "{" not in url


def dicts(items: Any) -> list[dict[str, Any]]:
    """The objects of a list; empty for what is no list."""
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def text(value: Any) -> str:
    """A string without the space around it; empty for what is no string."""
    return value.strip() if isinstance(value, str) else ""
