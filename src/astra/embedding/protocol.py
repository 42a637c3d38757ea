"""The protocol of embedders: texts in, unit vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from astra.errors import AstraError
from astra.settings import StageConfig

Vectors = NDArray[np.float32]


class EmbeddingError(AstraError):
    """Embeddings could not be had: the model is not installed, or the endpoint failed."""


class EmbeddingConfig(StageConfig):
    """Which model embeds. Endpoint, key and device live in block ``runtime``."""

    backend: Literal["local", "openai"]
    model: str
    """local: a Python package that carries a sentence-transformers model in its folder
    ``model``, a folder, or a hub name. openai: the model's name at the endpoint."""
    revision: str | None
    """The commit of a hub model; None: the newest."""
    batch_size: int
    """Texts per request or forward pass."""


class Embedder(Protocol):
    name: str

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row per text, each of length 1. Raises EmbeddingError; never a made-up vector."""
        ...


def embed_distinct(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """``embedder.embed``, computing each distinct text once, in sorted order.

    Batches then depend on the set of texts only, so callers' order cannot change a vector.
    """
    distinct = sorted(set(texts))
    place = {text: row for row, text in enumerate(distinct)}
    vectors = embedder.embed(distinct)
    if distinct == list(texts):
        return vectors  # as they are: many vectors are better not copied
    return vectors[[place[text] for text in texts]]


def unit_rows(raw: NDArray[np.floating], expected: int) -> Vectors:
    """Rows scaled to length 1. Raises EmbeddingError on a wrong shape, zero or non-finite row."""
    if raw.ndim != 2 or raw.shape[0] != expected:
        raise EmbeddingError(f"asked for {expected} embeddings, got an array of {raw.shape}")
    lengths = np.linalg.norm(raw, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or (lengths == 0).any():
        raise EmbeddingError("an embedding is zero or not finite; the model or endpoint is broken")
    return (raw / lengths).astype(np.float32)
