"""Web listings of registries, read page by page within bounds."""

from __future__ import annotations

import json
import logging
import os
import threading
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from astra.errors import AstraError
from astra.plugins import find
from astra.toolbank import formats
from astra.toolbank.sources import ListingSource

log = logging.getLogger("astra")
MAX_PAGES = 1000
MAX_BYTES = 32 * 2**20
ATTEMPTS = 4
RETRY_S = 1.0
MAX_RETRY_S = 60.0
_RETRIED = (408, 429, 500, 502, 503, 504)
_GONE = (404, 410)


class RegistryError(AstraError):
    """A listing cannot be read; the message names the address and what it answered."""


class NotThere(RegistryError):
    """The registry answers, and has nothing at the address."""


async def fetch_listing(source: ListingSource, timeout_s: float) -> list[Any]:
    """Documents of the first ``limit`` servers, as the listing's format pages through them.

    Raises RegistryError; never half a listing. A document that is gone is a BadDocument in its
    place.
    """
    fetch = Fetch(source, timeout_s)
    try:
        return await find(formats, source.format).fetch_documents(source, fetch)
    finally:
        fetch.ended.set()


def servers_of(page: Any, url: str) -> list[Any]:
    """What a page lists under ``servers``. Raises RegistryError if that is no list."""
    servers = page.get("servers") if isinstance(page, dict) else None
    if not isinstance(servers, list):
        raise RegistryError(f"{url} answers without a list `servers`")
    return servers


class Fetch:
    """One JSON document by address; passing faults are retried."""

    def __init__(self, source: ListingSource, timeout_s: float) -> None:
        self.ended = threading.Event()
        """Nobody waits any more: a thread outlives the interrupt of whoever awaits it."""
        self._timeout_s = timeout_s
        self._token = ""
        if source.token_env:
            self._token = os.environ.get(source.token_env, "")
            if not self._token:
                raise RegistryError(
                    f"{source.url} needs a token in the environment variable {source.token_env}"
                )

    def __call__(self, url: str) -> Any:
        request = urllib.request.Request(url, headers={"Accept": "application/json"})
        if self._token:
            # Not sent along when the registry redirects elsewhere.
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        for attempt in range(1, ATTEMPTS + 1):
            if self.ended.is_set():
                raise RegistryError(f"{url} was not read: interrupted")
            try:
                with urllib.request.urlopen(request, timeout=self._timeout_s) as reply:
                    body = reply.read(MAX_BYTES + 1)
                break
            except urllib.error.HTTPError as error:
                if error.code not in _RETRIED or attempt == ATTEMPTS:
                    kind = NotThere if error.code in _GONE else RegistryError
                    raise kind(f"{url} answers with status {error.code}") from None
                wait = _seconds(error.headers.get("Retry-After"), RETRY_S * 2**attempt)
            except (OSError, ValueError) as error:
                if attempt == ATTEMPTS or isinstance(error, ValueError):
                    # What the network says differs from run to run: it goes to the log alone.
                    log.warning("%s cannot be read: %s", url, error)
                    raise RegistryError(f"{url} cannot be read ({_kind(error)})") from None
                wait = RETRY_S * 2**attempt
            self.ended.wait(min(wait, MAX_RETRY_S))
        else:
            raise AssertionError("the last attempt returns or raises")
        if len(body) > MAX_BYTES:
            raise RegistryError(f"{url} answers with more than {MAX_BYTES} bytes")
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise RegistryError(f"{url} answers with something that is no JSON") from None


def _kind(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return type(reason if isinstance(reason, Exception) else error).__name__


def _seconds(text: str | None, otherwise: float) -> float:
    return float(text) if text and text.isdecimal() else otherwise


def with_terms(url: str, **terms: str) -> str:
    """``url`` with ``terms`` set in its query."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query)) | terms
    return urlunsplit(parts._replace(query=urlencode(query)))


def below(url: str, name: str) -> str:
    """The address of ``name`` below ``url``, without its query."""
    parts = urlsplit(url)
    path = f"{parts.path.rstrip('/')}/{quote(name, safe='@/')}"
    return urlunsplit(parts._replace(path=path, query=""))
