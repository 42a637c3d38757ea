"""Parameters of stage ``envs_merged``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from astra.embedding.protocol import EmbeddingConfig
from astra.envsynth.worlds import Nodes
from astra.llm.protocol import ModelConfig
from astra.records.qa import Split
from astra.sandbox.limits import SandboxLimits
from astra.settings import StageConfig


class ProblemFile(StageConfig):
    """JSON lines below ``problems/``; fields by name."""

    path: str
    question: str = "question"
    answer: str = "answer"
    split: Split = Split.TRAIN


class SuiteFile(StageConfig):
    """JSON lines below ``problems/`` whose problems must not be trained on."""

    path: str
    question: str = "question"


class CodeConfig(StageConfig):
    """Code-interpreter arenas (rStar2-Agent): a typed answer and one stateful ``python`` tool."""

    seed: int
    instances: dict[Split, Annotated[int, Field(ge=0)]]
    """How many generated problems per split; none: only ``files``."""
    table_share: float = Field(ge=0.0, le=1.0)
    """The share of generated problems that ask about tables; the rest is mathematics."""
    dev_families: float = Field(gt=0.0, lt=0.5)
    held_out_families: float = Field(gt=0.0, lt=0.5)
    """Shares of the families that these two splits own; training has the rest."""
    files: tuple[ProblemFile, ...]
    """Supplied problems."""
    decontaminate: tuple[SuiteFile, ...]
    """Suites whose problems no arena may resemble."""

    @property
    def enabled(self) -> bool:
        """Whether any arena is asked for."""
        return bool(self.files) or any(self.instances.values())


class GoalsPassed(StrEnum):
    """Which goals in worlds become arenas."""

    NONE = "none"
    ALONE = "alone"  # those that need no user who talks, without their users
    TALKING = "talking"  # all, each with its user


class EnvsMergedConfig(StageConfig):
    teacher: ModelConfig
    nodes: Nodes
    """Which sub-questions must have an environment; the choice of stage envs."""
    merge_attempts: int = Field(ge=1)
    """Tries of one merge, each told why the one before failed."""
    per_band: int = Field(ge=0)
    """Irrelevant-tool candidates kept per similarity band (K)."""
    embedding: EmbeddingConfig
    max_asks: int = Field(ge=1)
    """Asks that one group of tools may cost before it stays apart."""
    verify_batch: int = Field(ge=1)
    """Merged tools verified, or arenas replayed, together at most; bounds the open sessions."""
    code: CodeConfig
    goals: GoalsPassed
    """Which goals of table ``goals`` are passed on as arenas."""
    sandbox: SandboxLimits
