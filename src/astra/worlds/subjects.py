"""What a world that a teacher writes is about."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Self

from pydantic import Field, model_validator

from astra.records.qa import Split
from astra.settings import StageConfig
from astra.worlds.services.source import SERVICES


class WorldSubject(StageConfig):
    """A domain of which nothing is known but its name and what goes on there."""

    name: str = Field(pattern=r"[a-z][a-z0-9_]*")
    """The world's ``domain``; none of those that come along."""
    about: str = Field(min_length=20)
    """Who works there, for whom, and what is given out, kept or arranged."""
    split: Split
    openapi: str = ""
    """The OpenAPI document of a service that the world stands for, below ``sources/services``: the
    teacher reads it. Such a world is as large as its service, whatever the shape of the others."""

    @model_validator(mode="after")
    def _below(self) -> Self:
        path = PurePosixPath(self.openapi)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"openapi {self.openapi!r} must lie below {SERVICES}")
        return self

    @property
    def document(self) -> Path | None:
        """Where the document lies; None where there is none."""
        return SERVICES / self.openapi if self.openapi else None
