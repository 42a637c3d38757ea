"""Stage ``chains``: walks over tool graphs, checked for arguments and coherence (ASTRA 3.1)."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass

from astra.llm.pool import map_bounded
from astra.llm.protocol import ParseError, ProviderError, Teacher
from astra.records.base import content_id
from astra.records.graph import Chain, ChainStep, ToolGraph
from astra.records.score import Rejection
from astra.records.tool import ToolServer
from astra.store.metrics import StageMetrics
from astra.toolgraph.arguments import Unsatisfiable, bind_sources
from astra.toolgraph.asks import coherence_ask
from astra.toolgraph.config import ChainsConfig
from astra.toolgraph.graphs import as_networkx
from astra.toolgraph.walks import Walk, sample_walks


@dataclass(frozen=True)
class Candidate:
    server: ToolServer
    walk: Walk
    steps: tuple[ChainStep, ...]


async def accepted_chains(
    graphs: Iterable[ToolGraph],
    servers: Mapping[str, ToolServer],
    judge: Teacher,
    config: ChainsConfig,
    concurrency: int,
    metrics: StageMetrics,
) -> AsyncIterator[Chain]:
    """Chains that the judges accept; every other candidate is a counted rejection."""

    async def work(candidate: Candidate) -> Chain | Rejection:
        return await _verify(candidate, judge, config.votes, metrics)

    candidates = _candidates(graphs, servers, config, metrics)
    async for outcome in map_bounded(candidates, work, concurrency):
        if isinstance(outcome, Rejection):
            metrics.reject(outcome)
            continue
        metrics.count("chains")
        metrics.distribution("chain_length", [len(outcome.steps)])
        metrics.distribution("walk_weight", [outcome.walk_weight])
        yield outcome


def _candidates(
    graphs: Iterable[ToolGraph],
    servers: Mapping[str, ToolServer],
    config: ChainsConfig,
    metrics: StageMetrics,
) -> Iterable[Candidate]:
    for graph in graphs:
        server = servers.get(graph.server_id)
        if server is None:
            metrics.reject(Rejection(item=graph.id, reason="server_unknown"))
            continue
        tools = {tool.name: tool for tool in server.tools}
        seed = content_id(["walks", graph.id, config.model_dump(mode="json", exclude={"judge"})])
        walks = sample_walks(
            as_networkx(graph),
            random.Random(int(seed, 16)),
            walks=config.walks,
            min_length=config.min_length,
            max_length=config.max_length,
            acyclic=config.acyclic,
            limit=config.max_chains,
        )
        for walk in walks:
            metrics.count("walks")
            try:
                steps = bind_sources([tools[name] for name in walk.tools])
            except Unsatisfiable as error:
                item = " > ".join(walk.tools)
                metrics.reject(
                    Rejection(item=item, reason="argument_unsatisfiable", detail=str(error))
                )
                continue
            yield Candidate(server, walk, steps)


async def _verify(
    candidate: Candidate, judge: Teacher, votes: int, metrics: StageMetrics
) -> Chain | Rejection:
    """The vote operator: n samples, accepted if more say yes than no, failures abstain."""
    named = {tool.name: tool for tool in candidate.server.tools}
    tools = [named[name] for name in dict.fromkeys(candidate.walk.tools)]
    item = " > ".join(candidate.walk.tools)
    sketches: list[str] = []
    against = 0
    for sample in range(votes):
        try:
            verdict = await judge.ask(
                coherence_ask(candidate.server, tools, candidate.steps, sample)
            )
        except (ProviderError, ParseError):
            metrics.count("votes_abstained")
            continue
        if verdict.valid:
            sketches.append(verdict.task)
        else:
            against += 1
    if not sketches and not against:
        return Rejection(item=item, reason="all_votes_abstained")
    if len(sketches) <= against:
        return Rejection(item=item, reason="incoherent")
    return Chain(
        server_id=candidate.server.id,
        steps=candidate.steps,
        walk_weight=candidate.walk.weight,
        votes_for=len(sketches),
        votes_against=against,
        task_sketch=sketches[0],
    )
