"""What this domain asks a teacher, and the replies it accepts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from astra.llm.protocol import Ask
from astra.records.base import Frozen
from astra.records.graph import ChainStep
from astra.records.tool import Tool, ToolServer

PROPOSE = "toolgraph/propose"
COHERENCE = "toolgraph/coherence"
BACK_QUERY = "toolgraph/back_query"
BACK_CHAIN = "toolgraph/back_chain"


class ChainProposal(Frozen):
    """A chain of tool names with the task it would serve."""

    verdict: Literal["yes", "no", "unsure"]
    chain: tuple[str, ...]
    task: str


class ChainProposals(Frozen):
    proposals: tuple[ChainProposal, ...]


class CoherenceVerdict(Frozen):
    """Whether one user task needs exactly this chain; ``task`` is that task."""

    valid: bool
    task: str


class BackQuery(Frozen):
    """The request that a chain serves; ``query`` says why not where there is none."""

    valid: bool
    query: str


class BackChain(Frozen):
    """The tools that a request needs, in the order of the calls, after a plan in words."""

    plan: str
    chain: tuple[str, ...]


def propose_ask(server: ToolServer, sample: int) -> Ask[ChainProposals]:
    variables = {"server": server.view(), "tools": [tool.view() for tool in server.tools]}
    return Ask(PROPOSE, variables, ChainProposals, sample)


def coherence_ask(
    server: ToolServer, tools: Sequence[Tool], steps: Sequence[ChainStep], sample: int
) -> Ask[CoherenceVerdict]:
    variables = {
        "server": server.view(),
        "tools": [tool.view() for tool in tools],
        "steps": [step.model_dump(mode="json") for step in steps],
    }
    return Ask(COHERENCE, variables, CoherenceVerdict, sample)


def back_query_ask(
    server: ToolServer, tools: Sequence[Tool], steps: Sequence[ChainStep], sample: int
) -> Ask[BackQuery]:
    variables = coherence_ask(server, tools, steps, sample).variables
    return Ask(BACK_QUERY, variables, BackQuery, sample)


def back_chain_ask(server: ToolServer, query: str, sample: int) -> Ask[BackChain]:
    variables = {
        "server": server.view(),
        "tools": [tool.view() for tool in server.tools],
        "query": query,
    }
    return Ask(BACK_CHAIN, variables, BackChain, sample)
