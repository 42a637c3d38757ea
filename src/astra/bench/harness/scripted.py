"""A server whose completions a function writes: the do-nothing model, oracles and tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, cast

from astra.bench.harness.protocol import ModelEndpoint
from astra.bench.harness.relay import ENTRY_HEADER


@dataclass(frozen=True)
class ScriptedTurn:
    """One assistant message: text, calls as (name, arguments), or a refused request."""

    content: str | None = None
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    raw_arguments: str | None = None
    """Text in place of the calls' arguments, for models that write no JSON."""
    status: int = 200
    error: str = ""


Writer = Callable[[str, dict[str, Any]], ScriptedTurn]
"""(entry id, request body) -> what to answer."""


@dataclass
class ScriptedServer:
    """Serves until it is left. ``requests`` counts completions."""

    write: Writer
    model: str = "scripted"
    requests: int = 0
    keys: set[str] = field(default_factory=set[str])
    """Authorization headers seen."""

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Refuse connections from now on; idempotent."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def endpoint(self) -> ModelEndpoint:
        port = self._server.server_address[1]
        return ModelEndpoint(base_url=f"http://127.0.0.1:{port}/v1", model=self.model)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    owner: ScriptedServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients may hang up."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_POST(self) -> None:
        owner = cast("_Server", self.server).owner
        owner.requests += 1
        owner.keys.add(self.headers.get("Authorization") or "")
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        turn = owner.write(self.headers.get(ENTRY_HEADER) or "", body)
        answer = json.dumps(_completion(turn, body)).encode()
        self.send_response(turn.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _completion(turn: ScriptedTurn, body: dict[str, Any]) -> dict[str, Any]:
    if turn.status != 200:
        return {"error": {"message": turn.error, "type": "invalid_request_error"}}
    message: dict[str, Any] = {"role": "assistant", "content": turn.content}
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": f"call_{len(body['messages'])}_{index}",
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": turn.raw_arguments or json.dumps(arguments),
                },
            }
            for index, (name, arguments) in enumerate(turn.calls)
        ]
    return {
        "id": "scripted",
        "object": "chat.completion",
        "created": 0,
        "model": body.get("model", ""),
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": "tool_calls" if turn.calls else "stop",
                "logprobs": None,
            }
        ],
        # Characters stand in for tokens: enough to see that they are counted.
        "usage": _usage(len(json.dumps(body["messages"])), len(json.dumps(message))),
    }


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def idle(entry: str, body: dict[str, Any]) -> ScriptedTurn:
    """The floor: a model that does nothing and says so."""
    return ScriptedTurn(content="Done.")
