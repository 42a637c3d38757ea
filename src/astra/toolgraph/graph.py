"""Stage ``graph``: proposed chains become a weighted directed graph per server (ASTRA 3.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from itertools import pairwise

import networkx as nx

from astra.llm.notes import PromptNotes
from astra.llm.pool import sharded_flow, together
from astra.llm.protocol import ParseError, ProviderError, Teacher
from astra.records.graph import Edge, ToolGraph
from astra.records.score import Rejection
from astra.records.tool import ToolServer
from astra.store.metrics import StageMetrics
from astra.toolgraph.arguments import taken_from_results
from astra.toolgraph.asks import ChainProposals, propose_ask
from astra.toolgraph.config import GraphConfig
from astra.toolgraph.proposals import Reading, proposed_chains, read_proposal


def graphs(
    servers: Iterable[ToolServer],
    teacher: Teacher,
    config: GraphConfig,
    open_items: int,
    metrics: StageMetrics,
) -> AsyncGenerator[ToolGraph | Rejection, None]:
    """One graph per server; a server none of whose asks was answered is a rejection."""

    async def work(server: ToolServer) -> list[ToolGraph | Rejection]:
        return await _graph(server, teacher, config.samples, metrics)

    return sharded_flow(servers, work, open_items)


async def _graph(
    server: ToolServer, teacher: Teacher, samples: int, metrics: StageMetrics
) -> list[ToolGraph | Rejection]:
    notes = PromptNotes()
    noted = notes.of(teacher)
    replies = await together(*(_propose(server, sample, noted) for sample in range(samples)))
    rejections = [reply for reply in replies if isinstance(reply, Rejection)]
    metrics.count("servers")
    if len(rejections) == samples:
        return [*rejections, Rejection(item=server.id, reason="server_without_proposals")]
    readings: list[Reading] = []
    for sample, reply in enumerate(replies):
        if not isinstance(reply, Rejection):
            readings += read_reply(server, reply, f"sample {sample}", metrics)
    rejections += [rejection for reading in readings for rejection in reading.rejections]
    return [*rejections, build_graph(server, readings, notes.prompt_hash)]


async def _propose(server: ToolServer, sample: int, teacher: Teacher) -> ChainProposals | Rejection:
    try:
        return await teacher.ask(propose_ask(server, sample))
    except (ProviderError, ParseError) as error:
        reason = "ask_failed" if isinstance(error, ProviderError) else "reply_unparsable"
        part = f"sample {sample}"
        return Rejection(item=server.id, part=part, reason=reason, detail=str(error))


def read_reply(
    server: ToolServer, reply: ChainProposals, part: str, metrics: StageMetrics
) -> Iterator[Reading]:
    """The proposals with verdict yes, read; all are counted by their verdict."""
    for number, proposal in enumerate(reply.proposals):
        metrics.count(f"proposals_{proposal.verdict}")
        if proposal.verdict == "yes":
            reading = read_proposal(server, proposal, f"{part}, proposal {number}")
            if any(taken_from_results(reading.steps)):
                metrics.count("proposals_dependent")
            yield reading


def measure(metrics: StageMetrics, graph: ToolGraph) -> None:
    """Add one graph to the stage's counts and distributions."""
    metrics.count("graphs")
    metrics.count("edges", len(graph.edges))
    metrics.distribution("edges_per_graph", [len(graph.edges)])
    metrics.distribution("edge_weights", (edge.weight for edge in graph.edges))


def build_graph(
    server: ToolServer, readings: Sequence[Reading], prompt_hash: str = ""
) -> ToolGraph:
    """Weights count consecutive pairs of known tools in the proposals.

    An unknown tool ends the pair on both sides: its neighbours are never joined across it.
    """
    known = {tool.name for tool in server.tools}
    weights: Counter[tuple[str, str]] = Counter()
    for reading in readings:
        weights.update(
            pair for pair in pairwise(reading.tools) if pair[0] in known and pair[1] in known
        )
    return ToolGraph(
        server_id=server.id,
        nodes=tuple(sorted(known)),
        edges=tuple(Edge(source=a, target=b, weight=n) for (a, b), n in sorted(weights.items())),
        proposals=sum(1 for reading in readings if reading.steps),
        proposed=proposed_chains(readings),
        prompt_hash=prompt_hash,
    )


def as_networkx(graph: ToolGraph) -> nx.DiGraph:
    """The graph with ``weight`` on its edges, nodes and edges in a fixed order."""
    result: nx.DiGraph = nx.DiGraph()
    result.add_nodes_from(graph.nodes)
    result.add_weighted_edges_from((e.source, e.target, e.weight) for e in graph.edges)
    return result
