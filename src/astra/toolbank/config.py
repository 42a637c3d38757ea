"""Parameters of stage ``tools``."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from astra.llm.protocol import ModelConfig
from astra.settings import StageConfig


class FilterConfig(StageConfig):
    min_tools: int
    """Servers with fewer are dropped."""
    max_tools: int
    """Servers with more are dropped: their documents do not fit a prompt."""
    min_description_chars: int
    """Shorter tool descriptions count as missing; an ideograph counts as three characters."""
    max_description_chars: int = Field(ge=40)
    """Longer descriptions, of tools and of parameters, are cut."""
    max_bad_description_share: float
    """Tools without a usable description are dropped; a server with a larger share of them is."""
    deterministic_only: bool
    """Keep only servers whose repeated calls give the same bytes."""
    languages: tuple[str, ...]
    """ISO codes of the documents to keep; empty keeps all."""
    duplicate_similarity: float = Field(gt=0, le=1)
    """A server is a duplicate when the Jaccard index of its tools (name and parameter names) and
    those of an earlier server is at least this; 1: only when they are the same tools."""


class DomainConfig(StageConfig):
    by: Literal["text", "teacher"]
    """``text``: the document's own label, else key words of its text; ``teacher``: asked."""
    labels: tuple[str, ...]
    """What a teacher chooses from."""
    mapping: dict[str, str]
    """Stated domain in lower case -> label; others stay as they are."""

    @model_validator(mode="after")
    def _choosable(self) -> Self:
        if self.by == "teacher" and len(self.labels) < 2:
            raise ValueError("labels: a teacher needs at least two to choose from")
        return self


class ToolsConfig(StageConfig):
    sources: tuple[str, ...]
    """Source lists (YAML) relative to the repository root."""
    max_failed_live_share: float = Field(ge=0, le=1)
    """The share of the listed live servers that may fail to start; more fail the stage."""
    teacher: ModelConfig
    """Who labels domains, if ``domains.by`` says so, and infers results."""
    domains: DomainConfig
    infer_results: bool
    """Ask about each tool whose document does not say what it returns, or whether a call changes
    anything."""
    filters: FilterConfig

    @property
    def asking(self) -> bool:
        """Whether the teacher is asked anything."""
        return self.domains.by == "teacher" or self.infer_results
