"""The one way from a harness to a model: completions of known roles, with the key put in here.

``http://127.0.0.1:PORT/<role>/v1/chat/completions`` is forwarded to the role's endpoint under its
model name. Short outages are waited out; an endpoint that stays away is *lost*, which fails the
run. A prompt that outgrew the context is answered with code ``context_length_exceeded``, in
whatever words the server said so, and everything else that a server refuses as it is.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import httpx2

from astra.bench.harness.protocol import ModelEndpoint, SuiteError

log = logging.getLogger(__name__)

ENTRY_HEADER = "X-Suite-Entry"
"""The header that names the entry, passed on for whoever reads a server's logs; printable ASCII."""
OVERFLOW = "context_length_exceeded"
OVERFLOW_WORDS = re.compile(
    r"context_length_exceeded|maximum context length|context window|max_model_len"
    r"|maximum model length|prompt is too long|longer than the maximum|input is too long"
    r"|reduce the length|exceeds? the (?:available )?context",
    re.IGNORECASE,
)
ATTEMPTS = 4
PAUSE_S = 1.0
"""The pause before the second attempt; it doubles with each further one."""
MAX_PAUSE_S = 60.0
TIMEOUT_S = 1800.0
MAX_BODY = 64 << 20
_PATH = re.compile(r"/(?P<role>[a-z_]+)/v1/chat/completions")
_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})


class Relay:
    """Answers the connections of one listener until it is closed."""

    def __init__(self, listener: socket.socket, endpoints: Mapping[str, ModelEndpoint]) -> None:
        """Raises SuiteError if a key's environment variable is not set."""
        self.endpoints = dict(endpoints)
        self.keys = {role: api_key(role, endpoint) for role, endpoint in endpoints.items()}
        self.lost = ""
        """Why an endpoint is given up; empty while all answer."""
        self._client = httpx2.Client(
            timeout=httpx2.Timeout(TIMEOUT_S, connect=10.0), trust_env=False
        )
        self._server = _Server(listener, self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._client.close()

    def forward(self, role: str, body: dict[str, Any], entry: str = "") -> tuple[int, bytes]:
        """One completion for an entry: status and body to answer with."""
        endpoint = self.endpoints.get(role)
        if endpoint is None:
            return 404, _error(f"no endpoint has the role {role}", "unknown_role")
        url = endpoint.base_url.rstrip("/") + "/chat/completions"
        key = self.keys[role]
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        if entry:
            headers[ENTRY_HEADER] = entry
        problem = self.lost
        for attempt in range(ATTEMPTS):
            if self.lost:
                break
            pause = min(PAUSE_S * 2**attempt, MAX_PAUSE_S)
            try:
                reply = self._client.post(
                    url, json={**body, "model": endpoint.model}, headers=headers
                )
            except httpx2.HTTPError as error:
                problem = f"{type(error).__name__}: {error}"
            else:
                if reply.status_code not in _RETRIED:
                    return self._settled(role, endpoint, reply)
                problem = f"status {reply.status_code}: {reply.text[:300]}"
                pause = max(pause, min(_retry_after(reply), MAX_PAUSE_S))
            if attempt + 1 < ATTEMPTS:
                time.sleep(pause)
        self._lose(f"{endpoint.base_url} ({role}: {endpoint.model}) does not answer: {problem}")
        return 502, _error(self.lost, "endpoint_lost")

    def _settled(
        self, role: str, endpoint: ModelEndpoint, reply: httpx2.Response
    ) -> tuple[int, bytes]:
        if reply.status_code in (401, 403, 404):
            self._lose(
                f"{endpoint.base_url} refuses {role} model {endpoint.model!r} with status "
                f"{reply.status_code}: {reply.text[:300]}"
            )
        if reply.status_code in (400, 413, 422) and OVERFLOW_WORDS.search(reply.text):
            return 400, _error(f"{OVERFLOW}: {reply.text[:500]}", OVERFLOW)
        return reply.status_code, reply.content

    def _lose(self, reason: str) -> None:
        if not self.lost:
            self.lost = reason
            log.error("%s", reason)


def api_key(role: str, endpoint: ModelEndpoint) -> str:
    """The key of a role's endpoint; empty where it wants none. Raises SuiteError for one that is
    not set."""
    if not endpoint.api_key_env:
        return ""
    key = os.environ.get(endpoint.api_key_env, "")
    if not key:
        raise SuiteError(
            f"the endpoint of role {role} wants its key in the environment variable "
            f"{endpoint.api_key_env}, which is not set"
        )
    return key


def _retry_after(reply: httpx2.Response) -> float:
    try:
        return float(reply.headers.get("retry-after", "0"))
    except ValueError:
        return 0.0


def _error(message: str, code: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": code, "code": code}}).encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, relay: Relay) -> None:
        super().__init__(("127.0.0.1", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.relay = relay

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A harness that hangs up is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = TIMEOUT_S

    def do_POST(self) -> None:
        path = _PATH.fullmatch(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        if path is None or not 0 < length <= MAX_BODY:
            self.close_connection = True
            self._answer(404, _error("only chat completions are relayed", "not_relayed"))
            return
        try:
            body: Any = json.loads(self.rfile.read(length))
        except ValueError:
            body = None
        if not isinstance(body, dict):
            self._answer(400, _error("the body is no JSON object", "invalid_body"))
            return
        relay = cast("_Server", self.server).relay
        entry = self.headers.get(ENTRY_HEADER) or ""
        entry = entry if entry.isascii() and entry.isprintable() else ""
        self._answer(*relay.forward(path["role"], cast("dict[str, Any]", body), entry))

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("x-should-retry", "false")  # whoever is worth retrying was retried here
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass
