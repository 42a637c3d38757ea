"""``Suite``, the class of all external suites, and the messages to and from the driver of one.

Each file of ``bench/suites`` holds a suite as ``SUITE``, and as ``Options`` what may be set for it.
A suite is played by a *driver*: a process of its own per checkpoint, because harnesses keep
state in module globals. It reads one JSON document (``DriverRequest``) and writes JSON lines: one
``Listing``, or one ``Played`` per finished attempt; then ``{"kind": "end"}``. Drivers know no
key and no address but the relay's, through which every completion goes (``relay.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import Field, TypeAdapter, model_validator

from astra import plugins
from astra.bench import suites
from astra.errors import AstraError
from astra.records.base import Frozen
from astra.records.bench import SuiteOutcome
from astra.records.message import Message
from astra.records.score import Score
from astra.settings import StageConfig


class SuiteError(AstraError):
    """A suite cannot be played as configured, or its run failed and gives no score."""


class ModelEndpoint(StageConfig):
    """A running OpenAI-compatible server, and which of its models is meant."""

    base_url: str
    """Ends in ``/v1``."""
    model: str
    api_key_env: str = ""
    """The environment variable that holds the key; empty: none is sent."""


class Sample(StageConfig):
    """Which entries: all, or a seeded draw."""

    count: int | None = Field(default=None, ge=1)
    """So many, and the categories keep their shares."""
    per_category: int | None = Field(default=None, ge=1)
    """So many of each category that has them."""
    seed: int = 0

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.count is not None and self.per_category is not None:
            raise ValueError("a sample has a count or a count per_category, not both")
        return self


class Decoding(StageConfig):
    """How the model under test samples. None: not sent, so the server's default."""

    temperature: float = Field(default=0.0, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    """The longest completion."""
    extra: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Further fields of the request body."""


class SuiteConfig(StageConfig):
    """One entry of ``bench.suites``."""

    name: str
    """The suite: the name of its file in ``bench/suites``."""
    label: str = ""
    """Tells several settings of one suite apart; empty: ``name``."""
    sample: Sample = Sample()
    tries: int = Field(default=1, ge=1)
    decoding: Decoding = Decoding()
    concurrency: int = Field(default=4, ge=1)
    """Entries played side by side."""
    entry_timeout_s: float = Field(default=1800.0, gt=0)
    """No finished entry for so long fails the run."""
    max_infra_share: float = Field(default=0.0, ge=0, le=1)
    """More attempts than this lost to harness or endpoint: the run fails and gives no score."""
    options: dict[str, Any] = Field(default_factory=dict[str, Any])
    """What only this suite knows: its ``Options``, which refuse unknown keys."""
    endpoints: dict[str, ModelEndpoint] = Field(default_factory=dict[str, ModelEndpoint])
    """Further models by role, for example ``user``: the user simulator."""

    @property
    def suite(self) -> str:
        """The name that scores are recorded under."""
        return self.label or self.name


class Entry(Frozen):
    id: str
    category: str


class Job(Frozen):
    """One attempt to play."""

    entry_id: str
    category: str
    attempt: int
    seed: int
    """The seed that this attempt is sampled with; entry and attempt decide it."""


class Listing(Frozen):
    """What a suite holds under a configuration."""

    kind: Literal["listing"] = "listing"
    entries: tuple[Entry, ...]
    versions: dict[str, str]


class Played(Frozen):
    """One finished attempt, see ``SuiteEpisode``."""

    kind: Literal["played"] = "played"
    entry_id: str
    attempt: int
    outcome: SuiteOutcome
    scores: dict[str, Score]
    reason: str = ""
    steps: int = Field(default=0, ge=0)
    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    messages: tuple[Message, ...] = ()


class End(Frozen):
    """The driver's last line: nothing was cut off."""

    kind: Literal["end"] = "end"


Reply = Annotated[Listing | Played | End, Field(discriminator="kind")]
REPLY: TypeAdapter[Listing | Played | End] = TypeAdapter(Reply)


class DriverRequest(Frozen):
    """What a driver reads from its standard input."""

    task: Literal["list", "play"]
    config: dict[str, Any]
    """``SuiteConfig`` without its endpoints."""
    endpoints: dict[str, dict[str, str]] = Field(default_factory=dict[str, dict[str, str]])
    """``base_url`` and ``model`` of each role (``model``: the one under test); no key is needed."""
    jobs: tuple[Job, ...] = ()


@dataclass(frozen=True)
class DriverProcess:
    """How to start the process that plays a suite."""

    command: tuple[str, ...]
    caged: bool
    """Whether it runs as an unprivileged user without network: required wherever text of a
    model can reach an interpreter."""
    reads: tuple[Path, ...] = ()
    """What a caged driver sees besides the system, read-only."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """A caged driver has these variables and no others."""


@dataclass(frozen=True)
class Suite:
    """What is known of a suite before it is asked anything."""

    name: str
    """The name of its file."""
    score: str
    """The headline score's name, in [0, 1]."""
    driver: Callable[[Any], DriverProcess]
    """How to play it under its ``Options``; it raises SuiteError for what this machine lacks."""
    roles: tuple[str, ...] = ()
    """Endpoints it needs besides the model's, for example ``("user",)``."""
    checker: str = ""
    """The module of the bench environment that decides whether an answer is right: the benchmark's
    official checker, or the one its papers use. Empty: code of this project decides."""
    prompts: Callable[[Any], list[str]] | None = None
    """The problems under its ``Options``, where episodes do not hold them; it raises SuiteError
    where they cannot be read. None: episodes hold them."""

    def options(self, values: Mapping[str, Any]) -> StageConfig:
        """``values`` as its ``Options``. Raises PluginError for those it does not know."""
        return plugins.options(suites, self.name, values)


def find_suite(name: str) -> Suite:
    """The suite of a file in ``bench/suites``. Raises PluginError listing the suites there are."""
    suite: Suite = plugins.find(suites, name).SUITE
    return suite


@dataclass(frozen=True)
class Subject:
    """A checkpoint behind a running endpoint."""

    checkpoint: str
    endpoint: ModelEndpoint
    identity: str
    """What its answers depend on, for example a digest of the weights: part of journal keys."""
    prompting: Mapping[str, str] = field(default_factory=dict[str, str])
    """``template``, ``template_hash`` and ``thoughts`` (``SuiteRun``); empty: not known."""


class Serving(Protocol):
    """What can put a checkpoint behind an endpoint."""

    def __call__(self, checkpoint: str) -> AbstractContextManager[Subject]:
        """The checkpoint is served until the block ends."""
        ...
