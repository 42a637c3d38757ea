"""Parameters of stage ``tasks``."""

from __future__ import annotations

from pydantic import Field

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


class ThresholdsConfig(StageConfig):
    """Least judge labels, 1 to 5."""

    quality: int = Field(ge=1, le=5)
    realism: int = Field(ge=1, le=5)
    necessity: int = Field(ge=1, le=5)


class TasksConfig(StageConfig):
    teacher: ModelConfig
    judge: ModelConfig
    samples: int = Field(ge=1)
    """Tasks asked per chain."""
    server_tasks: ServerTasksConfig
    augment: AugmentConfig
    unsolvable: UnsolvableConfig
    thresholds: ThresholdsConfig
    max_words: int = Field(ge=1)
    """Longer questions are dropped."""
    near_duplicate: float = Field(ge=0.5, le=1)
    """Similarity from which the later of two questions of a server is dropped."""
    max_live_tasks: int = Field(ge=0)
    """Tasks on live servers: each costs server processes to execute."""
