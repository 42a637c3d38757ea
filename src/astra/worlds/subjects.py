"""What a world that a teacher writes is about."""

from __future__ import annotations

from pydantic import Field

from astra.records.qa import Split
from astra.settings import StageConfig


class WorldSubject(StageConfig):
    """A domain of which nothing is known but its name and what goes on there."""

    name: str = Field(pattern=r"[a-z][a-z0-9_]*")
    """The world's ``domain``; none of those that come along."""
    about: str = Field(min_length=20)
    """Who works there, for whom, and what is given out, kept or arranged."""
    split: Split
