"""Parameters of stages ``graph`` and ``chains``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from astra.llm.protocol import ModelConfig
from astra.plugins import options
from astra.settings import StageConfig
from astra.toolgraph import operators


class GraphConfig(StageConfig):
    teacher: ModelConfig
    samples: int = Field(ge=1)
    """How often each server is asked about; each answer holds several proposals."""


class ChainsConfig(StageConfig):
    operators: Mapping[str, SerializeAsAny[StageConfig]]
    """Module of ``toolgraph/operators`` -> its options; null: off. They judge in this order, each
    the chains that passed all before it."""
    walks: int = Field(ge=1)
    """Random walks tried per server: bounds the work whatever the graph."""
    max_chains: int = Field(ge=1)
    """Distinct chains per server that are judged."""
    dependent_first: bool
    """Whether, of the chains of several steps, those in which a step takes an earlier result are
    judged first, among equals those proposed as a whole.

    Single calls stay as many as were drawn."""
    min_length: int = Field(ge=1)
    max_length: int = Field(ge=1)
    acyclic: bool
    """Whether a walk visits no tool twice. False: as often as one proposed chain calls it."""

    @field_validator("operators", mode="before")
    @classmethod
    def _options(cls, chosen: Any) -> dict[str, StageConfig]:
        if not isinstance(chosen, Mapping):
            raise ValueError("a mapping of operators to their options, or null for off")
        judging = {name: values for name, values in chosen.items() if values is not None}
        if not judging:
            raise ValueError("at least one must be on: a chain that nobody judged cannot pass")
        return {name: options(operators, name, values) for name, values in judging.items()}

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_length > self.max_length:
            raise ValueError("min_length must not exceed max_length")
        return self
