"""Parameters of stage ``tasks``."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from astra.llm.protocol import ModelConfig
from astra.settings import StageConfig


class ServerTasksConfig(StageConfig):
    per_server: int = Field(ge=0)
    """Asks per server and tool count."""
    max_tools: int = Field(ge=1)
    """Tool counts 1..max_tools are asked for."""


class AugmentConfig(StageConfig):
    share: float = Field(ge=0, le=1)
    """Share of the accepted tasks that is augmented in each mode."""
    diverse: int = Field(ge=0)
    """Variants per augmented task; so for the other modes."""
    complicate: int = Field(ge=0)
    persona: int = Field(ge=0)


class UnsolvableConfig(StageConfig):
    """Shares of tasks without a full solution, relative to the accepted base tasks."""

    missing_function: float = Field(ge=0, le=1)
    missing_parameter: float = Field(ge=0, le=1)
    irrelevant: float = Field(ge=0, le=1)
    donors: Literal["recent", "stable"]
    """Where irrelevant questions come from: the last servers' by a generator, or by hash, so
    that another server's change moves few of them (unsolvable.Donors)."""


class ThresholdsConfig(StageConfig):
    """Least judge labels, 1 to 5."""

    quality: int = Field(ge=1, le=5)
    realism: int = Field(ge=1, le=5)
    necessity: int = Field(ge=1, le=5)
    difficulty: int = Field(ge=1, le=5)
    """Of choosing the right tools; 1 lets all pass."""
    uniqueness: int = Field(ge=1, le=5)
    """Whether only the planned tools solve it; 1 lets all pass."""


class TasksConfig(StageConfig):
    teacher: ModelConfig
    judge: ModelConfig
    samples: int = Field(ge=1)
    """Tasks asked per chain."""
    server_tasks: ServerTasksConfig
    languages: dict[str, Annotated[float, Field(ge=0, le=1)]]
    """Shares of base asks in a language other than the server's; the rest is in the server's."""
    augment: AugmentConfig
    personas: str | None
    """File of the people who ask in augmentation ``persona``; null: made up by rule."""
    unsolvable: UnsolvableConfig
    thresholds: ThresholdsConfig
    max_words: int = Field(ge=1)
    """Longer questions are dropped."""
    near_duplicate: float = Field(ge=0.5, le=1)
    """Similarity from which the later of two questions is dropped."""
    near_duplicate_scope: Literal["server", "set"]
    """Compared within each server, or also across all servers."""
    max_live_tasks: int = Field(ge=0)
    """Tasks on live servers: each costs server processes to execute."""

    @model_validator(mode="after")
    def _languages_share_one_whole(self) -> Self:
        if sum(self.languages.values()) > 1:
            raise ValueError(f"languages: the shares {self.languages} add up to more than 1")
        return self
