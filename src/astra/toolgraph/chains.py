"""Stage ``chains``: walks over tool graphs, checked for arguments and coherence (ASTRA 3.1)."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass

from astra.llm.notes import PromptNotes
from astra.llm.pool import map_bounded
from astra.llm.protocol import Teacher
from astra.records.base import content_id
from astra.records.graph import Chain, ChainStep, ToolGraph
from astra.records.score import Rejection
from astra.records.tool import Tool, ToolServer
from astra.records.verdict import ChainVerdict, Outcome, Verdict
from astra.store.metrics import StageMetrics
from astra.toolgraph.arguments import Unsatisfiable, bind_sources, replay
from astra.toolgraph.config import ChainsConfig
from astra.toolgraph.graphs import as_networkx
from astra.toolgraph.operators import Candidate, Operator, back_translate, vote
from astra.toolgraph.walks import Walk, sample_walks

REPLAYS = 2
"""Made-up runs that every chain must survive; values that fit by chance rarely fit each time."""


@dataclass(frozen=True)
class Judges:
    """The models of both operators, and further ones; back-translation without models is off."""

    vote: Sequence[Teacher]
    back_translation: Sequence[Teacher] = ()
    operators: Sequence[Operator] = ()


@dataclass(frozen=True)
class Judged:
    """A candidate's verdicts, and its chain if they accept it."""

    verdict: ChainVerdict
    chain: Chain | None = None


async def judged_chains(
    graphs: Iterable[ToolGraph],
    servers: Mapping[str, ToolServer],
    judges: Judges,
    config: ChainsConfig,
    concurrency: int,
    metrics: StageMetrics,
) -> AsyncIterator[Judged]:
    """Every sampled chain with its verdicts; what is not accepted is counted as a rejection."""

    async def work(candidate: Candidate | Judged) -> Judged:
        if isinstance(candidate, Judged):
            return candidate
        judged = await _judge(candidate, judges, config)
        for operator in judges.operators:
            if judged.chain is not None:
                judged = await _operate(candidate, judged, operator)
        return judged

    candidates = _candidates(graphs, servers, config, metrics)
    async for judged in map_bounded(candidates, work, concurrency):
        _count(judged, metrics)
        yield judged


def _candidates(
    graphs: Iterable[ToolGraph],
    servers: Mapping[str, ToolServer],
    config: ChainsConfig,
    metrics: StageMetrics,
) -> Iterable[Candidate | Judged]:
    for graph in graphs:
        server = servers.get(graph.server_id)
        if server is None:
            metrics.reject(Rejection(item=graph.id, reason="server_unknown"))
            continue
        tools = {tool.name: tool for tool in server.tools}
        walks = sample_walks(
            as_networkx(graph),
            _generator(graph, config),
            walks=config.walks,
            min_length=config.min_length,
            max_length=config.max_length,
            acyclic=config.acyclic,
            limit=config.max_chains,
        )
        for walk in walks:
            metrics.count("walks")
            try:
                steps = _satisfiable(walk, tools)
            except Unsatisfiable as error:
                detail = Verdict(
                    operator="arguments",
                    model="rule",
                    sample=0,
                    outcome=Outcome.NO,
                    detail=str(error),
                )
                yield _rejected(server, walk, "argument_unsatisfiable", (detail,))
                continue
            yield Candidate(server, walk, steps)


def _generator(graph: ToolGraph, config: ChainsConfig) -> random.Random:
    """Seeded by the graph and by how it is walked (and, as ever, by the votes on the walks)."""
    seed = config.model_dump(mode="json", exclude={"vote", "back_translation", "operators"})
    seed["votes"] = config.vote.samples
    return random.Random(int(content_id(["walks", graph.id, seed]), 16))


def _satisfiable(walk: Walk, tools: Mapping[str, Tool]) -> tuple[ChainStep, ...]:
    """The walk's steps with a source for every required argument. Raises Unsatisfiable."""
    steps = bind_sources([tools[name] for name in walk.tools])
    for number in range(REPLAYS):
        replay(steps, tools, random.Random(number))
    return steps


async def _judge(candidate: Candidate, judges: Judges, config: ChainsConfig) -> Judged:
    notes = PromptNotes()
    voters = [notes.of(model) for model in judges.vote]
    verdicts, reason = await vote(candidate, voters, config.vote)
    votes = list(verdicts)
    if not reason and config.back_translation:
        translators = [notes.of(model) for model in judges.back_translation]
        more, reason = await back_translate(candidate, translators, config.back_translation)
        verdicts = [*verdicts, *more]
    if reason:
        return _rejected(
            candidate.server, candidate.walk, reason, tuple(verdicts), notes.prompt_hash
        )
    agreed = [verdict for verdict in votes if verdict.outcome is Outcome.YES]
    chain = Chain(
        server_id=candidate.server.id,
        steps=candidate.steps,
        walk_weight=candidate.walk.weight,
        votes_for=len(agreed),
        votes_against=sum(verdict.outcome is Outcome.NO for verdict in votes),
        task_sketch=agreed[0].detail,
        prompt_hash=notes.prompt_hash,
    )
    verdict = ChainVerdict(
        server_id=candidate.server.id,
        tools=candidate.walk.tools,
        accepted=True,
        reason="",
        chain_id=chain.id,
        verdicts=tuple(verdicts),
        prompt_hash=notes.prompt_hash,
    )
    return Judged(verdict, chain)


async def _operate(candidate: Candidate, judged: Judged, operator: Operator) -> Judged:
    """``judged``, an accepted chain, with what one more operator says of it."""
    verdicts, reason = await operator(candidate)
    said = judged.verdict.model_dump(exclude={"id"})
    said["verdicts"] = (*judged.verdict.verdicts, *verdicts)
    if reason:
        said |= {"accepted": False, "reason": reason, "chain_id": ""}
    return Judged(ChainVerdict.model_validate(said), None if reason else judged.chain)


def _rejected(
    server: ToolServer,
    walk: Walk,
    reason: str,
    verdicts: tuple[Verdict, ...],
    prompt_hash: str = "",
) -> Judged:
    return Judged(
        ChainVerdict(
            server_id=server.id,
            tools=walk.tools,
            accepted=False,
            reason=reason,
            chain_id="",
            verdicts=verdicts,
            prompt_hash=prompt_hash,
        )
    )


def _count(judged: Judged, metrics: StageMetrics) -> None:
    verdict, chain = judged.verdict, judged.chain
    for cast in verdict.verdicts:
        if cast.outcome is Outcome.ABSTAINED:
            metrics.count(f"{cast.operator}s_abstained")
    if chain is None:
        metrics.reject(Rejection(item=" > ".join(verdict.tools), reason=verdict.reason))
        return
    metrics.count("chains")
    metrics.distribution("chain_length", [len(chain.steps)])
    metrics.distribution("walk_weight", [chain.walk_weight])
