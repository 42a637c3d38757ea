"""Parameters of stage ``tools``."""

from __future__ import annotations

from pydantic import Field

from astra.settings import StageConfig


class FilterConfig(StageConfig):
    min_tools: int
    """Servers with fewer are dropped."""
    max_tools: int
    """Servers with more are dropped: their documents do not fit a prompt."""
    min_description_chars: int
    """Shorter tool descriptions count as missing."""
    max_bad_description_share: float
    """Tools without a usable description are dropped; a server with a larger share of them is."""
    deterministic_only: bool
    """Keep only servers whose repeated calls give the same bytes."""
    languages: tuple[str, ...]
    """ISO codes of the documents to keep; empty keeps all."""


class ToolsConfig(StageConfig):
    sources: tuple[str, ...]
    """Source lists (YAML) relative to the repository root."""
    max_failed_live_share: float = Field(default=0.0, ge=0, le=1)
    """Of the listed live servers: how many may fail to start before the stage fails."""
    filters: FilterConfig
