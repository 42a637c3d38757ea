"""Source lists (``sources/*.yaml``): which servers to start and which documents to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError

from astra.errors import AstraError
from astra.records.tool import Launch
from astra.settings import StageConfig

SourceFormat = Literal["mcp", "openai", "openapi", "rapidapi", "bfcl", "astra", "catalogue"]


class SourceError(AstraError):
    """A source list is missing or not valid; the message names the entry and the repair."""


class LiveSource(StageConfig):
    """An MCP server to start over stdio and ask for its tools."""

    name: str
    source: str
    launch: Launch
    licence: str
    deterministic: bool
    title: str = ""
    description: str = ""
    domain: str = ""
    hints: dict[str, dict[str, dict[str, Any]]] = Field(default_factory=dict)
    """Tool -> parameter -> schema keywords that keep drawn values inside what calls accept."""


class DocumentSource(StageConfig):
    """One document, or every document that a glob pattern matches, in one format."""

    path: str
    format: SourceFormat
    licence: str = ""
    domain: str = ""
    deterministic: bool = True


class SourceList(StageConfig):
    live: tuple[LiveSource, ...] = ()
    documents: tuple[DocumentSource, ...] = ()


def load_sources(path: Path) -> SourceList:
    """Raises SourceError naming the file and each bad entry."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        return SourceList.model_validate(document or {})
    except FileNotFoundError:
        raise SourceError(
            f"source list {path} not found in {Path.cwd()}; tools.sources names it"
        ) from None
    except yaml.YAMLError as error:
        raise SourceError(f"source list {path} is no YAML: {error}") from None
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors()]
        raise SourceError("\n".join([f"source list {path} is not usable:", *lines])) from None
