"""A local server that speaks the chat completions protocol and answers every ask alike."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class WordServer:
    """Answers with a word for each prompt, after a delay; keeps every request and its time."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self.requests: list[dict[str, Any]] = []
        self.times: list[float] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                owner.requests.append(body)
                owner.times.append(time.monotonic())
                time.sleep(delay_s)
                said = body["messages"][0]["content"].split(".")[0].lower()
                message = {"role": "assistant", "content": json.dumps({"word": said})}
                choice = {"index": 0, "message": message, "finish_reason": "stop"}
                usage = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
                reply = {"id": "x", "object": "chat.completion", "choices": [choice]}
                content = json.dumps(reply | {"usage": usage}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

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

    def __enter__(self) -> WordServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
