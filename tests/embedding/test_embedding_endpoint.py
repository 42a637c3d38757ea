from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from astra.embedding.build import build_embedder
from astra.embedding.openai import EndpointEmbedder
from astra.embedding.protocol import EmbeddingError
from astra.settings import Endpoint, RuntimeConfig
from configs import embedding_config

CONFIG = embedding_config(backend="openai", model="m", batch_size=2)


class Server(ThreadingHTTPServer):
    """Answers embeddings; ``failures`` are statuses to give first, ``mutate`` spoils replies."""

    failures: list[int]
    seen: list[tuple[str, str | None, Any]]
    mutate: Any = None


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.seen.append((self.path, self.headers.get("Authorization"), body))
        if server.failures:
            return self._reply(server.failures.pop(0), {"error": "busy"})
        data = [
            {"index": at, "embedding": [3.0 * len(text), 4.0 * len(text)]}
            for at, text in enumerate(body["input"])
        ]
        reply = {"data": data[::-1]}
        return self._reply(200, server.mutate(reply) if server.mutate else reply)

    def _reply(self, status: int, document: Any) -> None:
        payload = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture
def server() -> Iterator[Server]:
    opened = Server(("127.0.0.1", 0), Handler)
    opened.failures, opened.seen = [], []
    thread = threading.Thread(target=opened.serve_forever, daemon=True)
    thread.start()
    yield opened
    opened.shutdown()
    opened.server_close()


def embedder(server: Server, attempts: int = 3) -> EndpointEmbedder:
    endpoint = Endpoint(
        base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key_env="TEST_EMBEDDING_KEY"
    )
    return EndpointEmbedder(CONFIG, endpoint, 5.0, attempts, pause_s=0.01)


def test_batches_are_sent_and_rows_put_in_order(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_EMBEDDING_KEY", "secret")
    server.mutate = lambda reply: {
        "data": [
            {**item, "embedding": [item["index"] + 1.0, 0.0] if item["index"] == 0 else [0.0, 2.0]}
            for item in reply["data"]
        ]
    }
    vectors = embedder(server).embed(["a", "bb", "ccc"])
    assert vectors.tolist() == [[1, 0], [0, 1], [1, 0]]
    assert [body["input"] for _, _, body in server.seen] == [["a", "bb"], ["ccc"]]
    assert server.seen[0][:2] == ("/v1/embeddings", "Bearer secret")
    assert server.seen[0][2]["model"] == "m"


def test_outages_are_retried_and_bounded(server: Server) -> None:
    server.failures = [503, 429]
    assert np.allclose(embedder(server).embed(["a"]), [[0.6, 0.8]])
    assert len(server.seen) == 3
    server.failures = [500] * 9
    with pytest.raises(EmbeddingError, match="status 500"):
        embedder(server).embed(["a"])
    assert len(server.seen) == 6


def test_a_refusal_is_not_retried(server: Server) -> None:
    server.failures = [401] * 3
    with pytest.raises(EmbeddingError, match="status 401"):
        embedder(server).embed(["a"])
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    "mutate",
    [
        lambda reply: {"data": reply["data"][:1]},
        lambda reply: {"nothing": 1},
        lambda reply: {"data": [{**item, "embedding": [0.0, 0.0]} for item in reply["data"]]},
        lambda reply: {"data": [{**item, "embedding": "x"} for item in reply["data"]]},
    ],
)
def test_a_bad_reply_is_never_made_up_for(server: Server, mutate: Any) -> None:
    server.mutate = mutate
    with pytest.raises(EmbeddingError):
        embedder(server).embed(["a", "b"])


def test_an_unreachable_endpoint_is_an_error() -> None:
    endpoint = Endpoint(base_url="http://127.0.0.1:9/v1")
    with pytest.raises(EmbeddingError, match="no embeddings"):
        EndpointEmbedder(CONFIG, endpoint, 1.0, 2, pause_s=0.01).embed(["a"])


def test_the_backend_needs_an_endpoint() -> None:
    with pytest.raises(EmbeddingError, match="embedding_endpoint"):
        build_embedder(CONFIG, RuntimeConfig())
