"""What stages ``graph`` and ``chains`` ask a teacher, and the replies they accept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from astra.llm.protocol import Ask
from astra.records.base import Frozen
from astra.records.graph import ChainStep
from astra.records.tool import Tool, ToolServer
from astra.text.names import suggested_names

PROPOSE = "toolgraph/propose"
COHERENCE = "toolgraph/coherence"
BACK_QUERY = "toolgraph/back_query"
BACK_CHAIN = "toolgraph/back_chain"


class ChainProposal(Frozen):
    """A chain of tool names with the task it would serve."""

    chain: tuple[str, ...]
    task: str
    verdict: Literal["yes", "no", "unsure"]


class ChainProposals(Frozen):
    proposals: tuple[ChainProposal, ...]


class CoherenceVerdict(Frozen):
    """Whether one user task needs exactly this chain; ``task`` is that task, if there is one."""

    reason: str
    valid: bool
    task: str


class BackQuery(Frozen):
    """The request that a chain serves; ``query`` says why not where there is none."""

    query: str
    valid: bool


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
    names = suggested_names(server.id, variables["steps"], sample)
    return Ask(COHERENCE, variables, CoherenceVerdict, sample, names=names)


def back_query_ask(
    server: ToolServer, tools: Sequence[Tool], steps: Sequence[ChainStep], sample: int
) -> Ask[BackQuery]:
    coherence = coherence_ask(server, tools, steps, sample)
    return Ask(BACK_QUERY, coherence.variables, BackQuery, sample, names=coherence.names)


def back_chain_ask(server: ToolServer, query: str, sample: int) -> Ask[BackChain]:
    variables = {
        "server": server.view(),
        "tools": [tool.view() for tool in server.tools],
        "query": query,
    }
    return Ask(BACK_CHAIN, variables, BackChain, sample)
