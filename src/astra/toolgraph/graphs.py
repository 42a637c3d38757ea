"""Stage ``graph``: proposed chains per server -> a weighted directed tool graph (ASTRA 3.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from itertools import pairwise

import networkx as nx

from astra.llm.notes import PromptNotes
from astra.llm.pool import map_bounded
from astra.llm.protocol import ParseError, ProviderError, Teacher
from astra.records.graph import Edge, ToolGraph
from astra.records.score import Rejection
from astra.records.tool import ToolServer
from astra.store.metrics import StageMetrics
from astra.toolgraph.asks import ChainProposal, propose_ask
from astra.toolgraph.config import GraphConfig


@dataclass(frozen=True)
class Proposed:
    server: ToolServer
    proposals: tuple[ChainProposal, ...]
    rejections: tuple[Rejection, ...]
    prompt_hash: str


async def build_graphs(
    servers: Iterable[ToolServer],
    teacher: Teacher,
    config: GraphConfig,
    concurrency: int,
    metrics: StageMetrics,
) -> AsyncIterator[ToolGraph]:
    """One graph per server; a server none of whose asks was answered is a rejection."""

    async def work(server: ToolServer) -> Proposed:
        return await _propose(server, teacher, config.samples)

    async for proposed in map_bounded(servers, work, concurrency):
        metrics.count("servers")
        for rejection in proposed.rejections:
            metrics.reject(rejection)
        if len(proposed.rejections) == config.samples:
            metrics.reject(Rejection(item=proposed.server.id, reason="server_without_proposals"))
            continue
        graph = build_graph(proposed.server, proposed.proposals, metrics, proposed.prompt_hash)
        metrics.count("graphs")
        metrics.count("edges", len(graph.edges))
        metrics.distribution("edges_per_graph", [len(graph.edges)])
        metrics.distribution("edge_weights", (edge.weight for edge in graph.edges))
        yield graph


async def _propose(server: ToolServer, teacher: Teacher, samples: int) -> Proposed:
    proposals: list[ChainProposal] = []
    rejections: list[Rejection] = []
    notes = PromptNotes()
    noted = notes.of(teacher)
    for sample in range(samples):
        try:
            proposals += (await noted.ask(propose_ask(server, sample))).proposals
        except (ProviderError, ParseError) as error:
            reason = "ask_failed" if isinstance(error, ProviderError) else "reply_unparsable"
            rejections.append(Rejection(item=server.id, reason=reason, detail=str(error)))
    return Proposed(server, tuple(proposals), tuple(rejections), notes.prompt_hash)


def build_graph(
    server: ToolServer,
    proposals: Iterable[ChainProposal],
    metrics: StageMetrics,
    prompt_hash: str = "",
) -> ToolGraph:
    """Weights count consecutive pairs of known tools in chains with verdict yes.

    An unknown tool ends the pair on both sides: its neighbours are never joined across it.
    """
    known = {tool.name for tool in server.tools}
    weights: Counter[tuple[str, str]] = Counter()
    counted = 0
    for proposal in proposals:
        metrics.count(f"proposals_{proposal.verdict}")
        if proposal.verdict != "yes":
            continue
        unknown = [name for name in proposal.chain if name not in known]
        metrics.count("unknown_tools", len(unknown))
        counted += not unknown
        weights.update(
            pair for pair in pairwise(proposal.chain) if pair[0] in known and pair[1] in known
        )
    return ToolGraph(
        server_id=server.id,
        nodes=tuple(sorted(known)),
        edges=tuple(Edge(source=a, target=b, weight=n) for (a, b), n in sorted(weights.items())),
        proposals=counted,
        prompt_hash=prompt_hash,
    )


def as_networkx(graph: ToolGraph) -> nx.DiGraph:
    """The graph with ``weight`` on its edges, nodes and edges in a fixed order."""
    result: nx.DiGraph = nx.DiGraph()
    result.add_nodes_from(graph.nodes)
    result.add_weighted_edges_from((e.source, e.target, e.weight) for e in graph.edges)
    return result
