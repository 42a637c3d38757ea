from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from astra.embedding.build import build_embedder
from astra.embedding.local import LocalEmbedder, model_folder
from astra.embedding.protocol import EmbeddingError, Vectors, embed_distinct
from astra.settings import RuntimeConfig
from configs import embedding_config

MINILM = embedding_config()


class Recorder:
    """Counts what it is asked; the vector of a text is its length and 1."""

    name = "recorder"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.asked += texts
        return np.array([[len(text), 1] for text in texts], dtype=np.float32)


def test_equal_texts_are_embedded_once_in_sorted_order() -> None:
    recorder = Recorder()
    vectors = embed_distinct(recorder, ["bb", "a", "bb", "ccc"])
    assert recorder.asked == ["a", "bb", "ccc"]
    assert vectors[:, 0].tolist() == [2, 1, 2, 3]


def test_the_packaged_model_knows_similar_documents() -> None:
    embedder = build_embedder(MINILM, RuntimeConfig(threads=1))
    texts = [
        "get_asking_price: Get the asking price of a listing.",
        "get_rent: Get the monthly rent of an apartment.",
        "list_molecules: List the molecules of a compound.",
    ]
    vectors = embedder.embed(texts)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    similar = vectors @ vectors.T
    assert similar[0, 1] > similar[0, 2] + 0.05
    assert embedder.embed([]).shape[0] == 0
    again = build_embedder(MINILM, RuntimeConfig(threads=1)).embed(texts)
    assert np.array_equal(vectors, again)


def test_a_missing_model_says_what_to_do() -> None:
    config = embedding_config(model="no-such-model-anywhere")
    assert model_folder(config.model) is None
    with pytest.raises(EmbeddingError, match="install the package"):
        LocalEmbedder(config, 1, "cpu").embed(["x"])
