"""An OpenAI-compatible embeddings endpoint (OpenAI, vLLM, Ollama, text-embeddings-inference)."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

import numpy as np

from astra.embedding.protocol import EmbeddingConfig, EmbeddingError, Vectors, unit_rows
from astra.settings import Endpoint

_RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504})
_LONGEST_WAIT_S = 30.0


class EndpointEmbedder:
    """Sends batches one after the other; retries outages with growing pauses, bounded."""

    def __init__(
        self,
        config: EmbeddingConfig,
        endpoint: Endpoint,
        timeout_s: float,
        max_attempts: int,
        pause_s: float = 1.0,
    ) -> None:
        self.name = f"openai:{config.model}"
        self._config = config
        self._url = endpoint.base_url.rstrip("/") + "/embeddings"
        self._key = os.environ.get(endpoint.api_key_env, "")
        self._timeout_s = timeout_s
        self._max_attempts = max_attempts
        self._pause_s = pause_s

    def embed(self, texts: Sequence[str]) -> Vectors:
        if not texts:
            return np.zeros((0, 1), dtype=np.float32)
        size = self._config.batch_size
        batches = [list(texts[at : at + size]) for at in range(0, len(texts), size)]
        return np.concatenate([self._embed_batch(batch) for batch in batches])

    def _embed_batch(self, batch: list[str]) -> Vectors:
        document = self._request({"model": self._config.model, "input": batch})
        try:
            rows = {int(item["index"]): item["embedding"] for item in document["data"]}
            raw = np.asarray([rows[at] for at in range(len(batch))], dtype=np.float64)
        except (KeyError, TypeError, ValueError) as error:
            raise EmbeddingError(
                f"{self._url}: the reply is no list of {len(batch)} embeddings ({error!r})"
            ) from error
        return unit_rows(raw, len(batch))

    def _request(self, body: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(
            self._url, data=json.dumps(body).encode(), headers=headers, method="POST"
        )
        reason = ""
        for attempt in range(self._max_attempts):
            if attempt:
                time.sleep(min(self._pause_s * 2 ** (attempt - 1), _LONGEST_WAIT_S))
            try:
                with urllib.request.urlopen(request, timeout=self._timeout_s) as response:
                    return json.loads(response.read())
            except urllib.error.HTTPError as error:
                reason = f"status {error.code}: {error.read(300).decode(errors='replace')}"
                if error.code not in _RETRIED:
                    break
            except (OSError, ValueError) as error:
                reason = str(error)
        raise EmbeddingError(
            f"{self._url} gave no embeddings ({reason}); check runtime.embedding_endpoint and "
            "that the server serves this model"
        )
