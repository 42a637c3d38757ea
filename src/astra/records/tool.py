"""Tools and the servers that offer them (stage ``tools``)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar, Literal

from astra.records.base import Frozen, Record, Sparse

Effect = Literal["", "reads", "writes"]
"""Whether a call changes anything; empty: nobody said."""


class InferredResult(Frozen):
    """What a teacher expects a tool to return, where its publisher does not say."""

    output_schema: dict[str, Any]
    """JSON Schema 2020-12 of one result."""
    example: Any
    """One result that satisfies the schema."""


class Tool(Sparse):
    """A tool document in OpenAI's function schema. ``parameters`` is JSON Schema 2020-12."""

    sparse: ClassVar[tuple[str, ...]] = ("original_parameters", "inferred", "effect")
    name: str
    description: str
    parameters: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    original_name: str | None = None
    """The server's own name where ``name`` had to be sanitised; used for execution."""
    hints: dict[str, dict[str, Any]] = {}
    """Parameter -> schema keywords (``examples``, ``minimum``, ...) that narrow the values drawn
    when tasks are written, so that live calls succeed. Never shown to an agent."""

    original_parameters: dict[str, str] = {}
    """Parameter -> the server's own name, where the name had to be sanitised."""
    inferred: InferredResult | None = None
    """A guess in place of a missing ``output_schema``: no contract, and never shown to an agent."""
    effect: Effect = ""
    """What the publisher's annotations or the HTTP method say, else a teacher's reading of the
    document."""

    @property
    def result_schema(self) -> dict[str, Any] | None:
        """The publisher's schema of a result, else the inferred one, if there is any."""
        return self.output_schema or (self.inferred.output_schema if self.inferred else None)

    def original_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """``arguments`` by the server's own parameter names."""
        return {self.original_parameters.get(key, key): v for key, v in arguments.items()}

    def view(self) -> dict[str, Any]:
        """What a teacher is shown."""
        return {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
            "output_schema": self.output_schema,
        }

    def openai(self) -> dict[str, Any]:
        """The ``{"type": "function", "function": {...}}`` form that chat APIs take."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters,
            },
        }


class Execution(StrEnum):
    """What answers a server's calls."""

    LIVE = "live"  # a real MCP server process
    EMULATED = "emulated"  # documents only


class Launch(Sparse):
    """How to start a server over stdio; ``environment`` names the pinned environment it runs in.

    ``{workdir}`` inside ``args`` and ``env`` values is replaced by the episode's directory.
    ``${NAME}`` in a value of ``env`` is read from the environment at the start: a caged server
    has no other variable of the host.
    """

    sparse: ClassVar[tuple[str, ...]] = ("network",)
    environment: str
    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    setup: dict[str, str] = {}
    """Files (relative path -> text) written into the episode's directory before the start."""
    network: bool = False
    """Whether a caged server has the host's network; without it, it has its own loopback alone."""


class HttpLaunch(Launch):
    """How to reach a server over streamable HTTP.

    With a ``command``, its own process is started first, which needs ``network`` for the host to
    reach it; ``{port}`` in ``args``, ``env`` and ``url`` is a free port. Without one, ``url`` is a
    server that runs elsewhere: its state is shared and is not reset between episodes. ``${NAME}``
    in a header's value is read from the environment when the connection is made, so no record
    holds a secret.
    """

    environment: str = ""
    command: str = ""
    url: str
    headers: dict[str, str] = {}


class ToolServer(Record):
    """A server and the tools it offers, live or as documents."""

    identity: ClassVar[tuple[str, ...]] = ("name", "source", "tools")
    sparse: ClassVar[tuple[str, ...]] = ("prompt_hash",)
    name: str
    title: str
    description: str
    domain: str
    source: str
    """Where the document came from, for example ``pypi:mcp-server-sqlite==2025.4.25``."""
    licence: str
    language: str
    execution: Execution
    deterministic: bool
    """Same calls after a reset give the same bytes; only such servers are used at scale smoke."""
    launch: HttpLaunch | Launch | None = None
    tools: tuple[Tool, ...]
    repairs: tuple[str, ...] = ()
    """What normalisation changed, one line each."""
    prompt_hash: str = ""
    """Hashes of the prompt templates whose answers it holds, joined by ``+``."""

    def view(self) -> dict[str, str]:
        """What a teacher is shown of the server itself."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "domain": self.domain,
            "language": self.language,
        }
