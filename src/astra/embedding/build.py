"""The embedder that a configuration names."""

from __future__ import annotations

from astra.embedding.local import LocalEmbedder
from astra.embedding.openai import EndpointEmbedder
from astra.embedding.protocol import Embedder, EmbeddingConfig, EmbeddingError
from astra.settings import RuntimeConfig


def build_embedder(config: EmbeddingConfig, runtime: RuntimeConfig) -> Embedder:
    """The embedder of the configured backend. Raises EmbeddingError if it lacks an endpoint."""
    if config.backend == "local":
        return LocalEmbedder(config, runtime.threads, runtime.device)
    endpoint = runtime.embedding_endpoint
    if endpoint is None:
        raise EmbeddingError(
            "embedding backend `openai` needs runtime.embedding_endpoint (base_url, api_key_env)"
        )
    return EndpointEmbedder(config, endpoint, runtime.request_timeout_s, runtime.max_attempts)
