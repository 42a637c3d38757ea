"""A sentence-transformers model on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from astra.embedding.protocol import EmbeddingConfig, EmbeddingError, Vectors, unit_rows


class LocalEmbedder:
    """Loads the model at the first use, so that an empty run costs nothing."""

    def __init__(self, config: EmbeddingConfig, threads: int, device: str) -> None:
        self.name = f"local:{config.model}"
        self._config = config
        self._threads = threads
        self._device = device
        self._model: Any = None

    def embed(self, texts: Sequence[str]) -> Vectors:
        if not texts:
            return np.zeros((0, 1), dtype=np.float32)
        if self._model is None:
            self._model = self._load()
        raw = self._model.encode(
            list(texts),
            batch_size=self._config.batch_size,
            show_progress_bar=False,
            convert_to_numpy=True,
        )
        return unit_rows(np.asarray(raw), len(texts))

    def _load(self) -> Any:
        folder = model_folder(self._config.model)
        if folder is not None:
            # A model that lies on disk needs no hub; without this its loader would ask it.
            os.environ.setdefault("HF_HUB_OFFLINE", "1")
        import torch
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        logging.disable_progress_bar()
        torch.set_num_threads(self._threads)
        device = None if self._device == "auto" else self._device
        try:
            return SentenceTransformer(
                str(folder or self._config.model), device=device, revision=self._config.revision
            )
        except (OSError, ValueError) as error:
            raise EmbeddingError(
                f"embedding model {self._config.model!r} cannot be loaded: {error}; install the "
                "package that carries it, or set envs_merged.embedding to another model"
            ) from error


def model_folder(model: str) -> Path | None:
    """The folder of a model on disk: a path, or folder ``model`` of an installed package."""
    if Path(model).is_dir():
        return Path(model)
    package = model.replace("-", "_")
    if not package.isidentifier():
        return None
    spec = find_spec(package)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(location) / "model"
        if folder.is_dir():
            return folder
    return None
