"""Facts of table ``tools``: its servers, and how long their documents are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from astra.estimate.asks import Amount, counted
from astra.estimate.sampling import mean, sample, size
from astra.records.tool import Execution, Tool, ToolServer


@dataclass(frozen=True)
class ServerFacts:
    """The servers of table ``tools``."""

    rows: Amount
    tools: float
    """Tools of a server."""
    silent: float
    """Those that do not say what they return, or whether a call changes anything."""
    document_bytes: float
    """Name, description and parameters of one tool."""
    result_bytes: float
    """What is known of one tool's result: the publisher's schema, or a guess with its example."""
    emulated: float
    """The share of servers that exist as documents only."""

    @property
    def documents_bytes(self) -> float:
        """All tools of one server as an agent sees them."""
        return self.tools * self.document_bytes

    @property
    def tool_bytes(self) -> float:
        """One tool as writers and judges of chains and tasks see it."""
        return self.document_bytes + self.result_bytes

    @property
    def tools_bytes(self) -> float:
        """All tools of one server as those see them."""
        return self.tools * self.tool_bytes


def servers_of(table: Path) -> ServerFacts:
    """Facts of table ``tools``."""
    rows, some = sample(table, ToolServer)
    return replace(facts_of(some), rows=rows)


def facts_of(servers: Sequence[ToolServer]) -> ServerFacts:
    """Facts of these servers."""
    tools = [tool for server in servers for tool in server.tools]
    return ServerFacts(
        rows=counted(len(servers)),
        tools=mean(len(server.tools) for server in servers),
        silent=mean(sum(map(_is_silent, server.tools)) for server in servers),
        document_bytes=mean(map(document_bytes, tools)),
        result_bytes=mean(map(_result_bytes, tools)),
        emulated=mean(server.execution is Execution.EMULATED for server in servers),
    )


def _is_silent(tool: Tool) -> bool:
    return not (tool.output_schema and tool.effect)


def document_bytes(tool: Tool) -> int:
    """One tool as an agent sees it."""
    return size(tool.openai()["function"])


def _result_bytes(tool: Tool) -> int:
    return size(tool.output_schema) + (size(tool.inferred.model_dump()) if tool.inferred else 0)
