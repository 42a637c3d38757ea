"""Parameters of stages ``graph`` and ``chains``."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from astra.errors import AstraError
from astra.llm.protocol import ModelConfig, ModelsConfig
from astra.plugins import find
from astra.settings import StageConfig
from astra.toolgraph import operators


class GraphConfig(StageConfig):
    teacher: ModelConfig
    samples: int = Field(ge=1)
    """Asks per server; each returns several proposals."""


class PanelConfig(ModelsConfig):
    """Models whose answers are drawn more than once."""

    temperature: float | None = Field(ge=0)
    """In place of the models' own: a judge at temperature 0 repeats itself. None: their own."""

    def sampled(self) -> ModelsConfig:
        """The models as they are asked."""
        if self.temperature is None:
            return ModelsConfig(models=self.models)
        change = {"temperature": self.temperature}
        return ModelsConfig(models=tuple(m.model_copy(update=change) for m in self.models))


class VoteConfig(PanelConfig):
    """Samples of the coherence question from each of ``models``."""

    samples: int = Field(ge=1)
    """Per model."""
    quorum: int = Field(ge=1)
    """Fewer votes cast, abstentions left out, reject the chain."""
    min_share: float = Field(ge=0, lt=1)
    """More than this share of the votes cast must say yes."""

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.quorum > self.samples * len(self.models):
            raise ValueError("quorum: more votes than are asked for")
        return self


class BackTranslationConfig(PanelConfig):
    """Each of ``models`` writes the request that a chain serves, then finds the chain again."""

    attempts: int = Field(ge=1)
    """Per model; one that finds the chain is enough."""
    min_share: float = Field(ge=0, lt=1)
    """More than this share of all models must find it; one that gives no answer does not."""


class OperatorConfig(StageConfig):
    """One more operator, a file of ``toolgraph/known``: see docs/extending.md."""

    name: str
    models: tuple[ModelConfig, ...] = ()
    """Whom it asks, if anybody."""
    options: dict[str, Any] = Field(default_factory=dict[str, Any])
    """What only this operator knows; it refuses unknown ones."""

    @model_validator(mode="after")
    def _usable(self) -> Self:
        try:
            find(operators, self.name).Options.model_validate(self.options)
        except AstraError as error:
            raise ValueError(str(error)) from None
        return self


class ChainsConfig(StageConfig):
    vote: VoteConfig
    back_translation: BackTranslationConfig | None
    """None: off. Asked of chains that pass the vote."""
    operators: tuple[OperatorConfig, ...] = ()
    """Further ones, in this order, each asked of chains that passed all before it."""
    walks: int = Field(ge=1)
    """Random walks tried per server: bounds the work whatever the graph."""
    max_chains: int = Field(ge=1)
    """Distinct chains kept per server before verification."""
    min_length: int = Field(ge=1)
    max_length: int = Field(ge=1)
    acyclic: bool

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_length > self.max_length:
            raise ValueError("min_length must not exceed max_length")
        return self
