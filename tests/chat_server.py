"""A local server that speaks the chat completions protocol and follows a script of faults."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from astra.settings import Endpoint, RuntimeConfig

KEY = "sk-secret-for-tests-0123456789"


@dataclass
class Answer:
    """One scripted response. ``content`` becomes a completion unless ``raw`` is given."""

    content: str | None = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    error: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    finish: str = "stop"
    refusal: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    """Further fields of the message, as servers have them that part thoughts from content."""
    raw: bytes | None = None
    delay_s: float = 0.0
    drop: bool = False

    def body(self) -> bytes:
        if self.raw is not None:
            return self.raw
        if self.status != 200:
            return json.dumps({"error": {"message": self.error, "code": self.error}}).encode()
        message = {"role": "assistant", "content": self.content, "refusal": self.refusal}
        message |= self.extra
        if self.tool_calls:
            message["tool_calls"] = self.tool_calls
        return json.dumps(
            {
                "id": "x",
                "object": "chat.completion",
                "choices": [{"index": 0, "message": message, "finish_reason": self.finish}],
                "usage": {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13},
            }
        ).encode()


class ChatServer:
    """Answers with the script in order, then with ``default``; keeps every request body."""

    def __init__(
        self, *script: Answer, default: Callable[[dict[str, Any]], Answer] | None = None
    ) -> None:
        self.script = list(script)
        self.default = default
        self.requests: list[dict[str, Any]] = []
        self.authorization: list[str] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self._lock = threading.Lock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                owner._serve(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Http(ThreadingHTTPServer):
            request_queue_size = 256

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a client that was killed

        self._http = Http(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _next(self, body: dict[str, Any], handler: BaseHTTPRequestHandler) -> Answer:
        with self._lock:
            self.requests.append(body)
            self.authorization.append(handler.headers.get("Authorization", ""))
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            if self.script:
                return self.script.pop(0)
        if self.default is None:
            return Answer(status=500, error="the script is over")
        return self.default(body)

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers["Content-Length"])
        answer = self._next(json.loads(handler.rfile.read(length)), handler)
        try:
            time.sleep(answer.delay_s)
            if answer.drop:
                handler.close_connection = True
                handler.connection.shutdown(socket.SHUT_RDWR)
                return
            body = answer.body()
            handler.send_response(answer.status)
            for name, value in {**answer.headers, "Content-Length": str(len(body))}.items():
                handler.send_header(name, value)
            handler.send_header("Content-Type", "application/json")
            handler.end_headers()
            handler.wfile.write(body)
        except OSError:
            pass  # the client gave up, as a stalled answer wants it to
        finally:
            with self._lock:
                self.in_flight -= 1


def runtime(*urls: str, **values: object) -> RuntimeConfig:
    given = [Endpoint(base_url=url, api_key_env="ASTRA_TEST_KEY") for url in urls]
    return RuntimeConfig.model_validate({"endpoints": given, "request_timeout_s": 5, **values})
