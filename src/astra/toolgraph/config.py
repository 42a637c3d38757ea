"""Parameters of stages ``graph`` and ``chains``."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from astra.llm.protocol import ModelConfig
from astra.settings import StageConfig


class GraphConfig(StageConfig):
    teacher: ModelConfig
    samples: int = Field(ge=1)
    """Asks per server; each returns several proposals."""


class ChainsConfig(StageConfig):
    judge: ModelConfig
    walks: int = Field(ge=1)
    """Random walks tried per server: bounds the work whatever the graph."""
    max_chains: int = Field(ge=1)
    """Distinct chains kept per server before verification."""
    min_length: int = Field(ge=1)
    max_length: int = Field(ge=1)
    acyclic: bool
    votes: int = Field(ge=1)
    """Samples of the coherence judge per chain."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_length > self.max_length:
            raise ValueError("min_length must not exceed max_length")
        return self
