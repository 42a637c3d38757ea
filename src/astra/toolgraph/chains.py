"""Stage ``chains``: walks over tool graphs, checked for arguments and coherence (ASTRA 3.1)."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from astra.llm.notes import PromptNotes
from astra.llm.pool import flow
from astra.records.base import content_id
from astra.records.graph import Chain, ChainStep, ToolGraph
from astra.records.score import Rejection
from astra.records.tool import Tool, ToolServer
from astra.records.verdict import ChainVerdict, Verdict
from astra.records.verdict import Outcome as Vote
from astra.store.metrics import StageMetrics
from astra.toolgraph.arguments import Unsatisfiable, bind_sources, replay
from astra.toolgraph.config import ChainsConfig
from astra.toolgraph.graph import as_networkx
from astra.toolgraph.judging import VOTE, Operator, SampledChain
from astra.toolgraph.walks import Walk, sample_walks

RULE = "rule"
"""The model of a verdict that no model gave."""
REPLAYS = 2
"""How many made-up runs every chain must survive; what fits by chance rarely fits each time."""


Outcome = ChainVerdict | Chain | Rejection
Servers = Callable[[str], ToolServer | None]
"""The server of an id, if there is one."""


@dataclass(frozen=True)
class JudgedChain:
    """A candidate's verdicts, and its chain if they accept it."""

    graph_id: str
    verdict: ChainVerdict
    chain: Chain | None = None

    def outcomes(self) -> list[Outcome]:
        """The verdict in any case, and the chain or why there is none."""
        if self.chain is not None:
            return [self.verdict, self.chain]
        against = [cast for cast in self.verdict.verdicts if cast.outcome is not Vote.YES]
        rejection = Rejection(
            item=self.graph_id,
            part=" > ".join(self.verdict.tools),
            reason=self.verdict.reason,
            detail="\n".join(cast.detail for cast in against if cast.model == RULE),
            said="\n".join(_said(cast) for cast in against if cast.model != RULE),
        )
        return [self.verdict, rejection]


def _said(verdict: Verdict) -> str:
    # Why a model abstained is a fault of its endpoint, which the verdicts' table has.
    abstained = verdict.outcome is Vote.ABSTAINED
    words = "abstained" if abstained else verdict.detail
    return f"{verdict.operator}, {verdict.model}: {words}"


def chains(
    graphs: Iterable[ToolGraph],
    servers: Servers,
    operators: Sequence[Operator],
    config: ChainsConfig,
    open_items: int,
    metrics: StageMetrics,
) -> AsyncGenerator[Outcome, None]:
    """Every sampled chain with its verdicts; what is not accepted is a rejection besides."""

    async def work(candidate: SampledChain | JudgedChain | Rejection) -> list[Outcome]:
        if isinstance(candidate, Rejection):
            return [candidate]
        if isinstance(candidate, JudgedChain):
            return candidate.outcomes()
        judged = await _judge(candidate, operators)
        for cast in judged.verdict.verdicts:
            if cast.outcome is Vote.ABSTAINED:
                metrics.count(f"{cast.operator}s_abstained")
        return judged.outcomes()

    return flow(_candidates(graphs, servers, config, metrics), work, open_items)


def _candidates(
    graphs: Iterable[ToolGraph], servers: Servers, config: ChainsConfig, metrics: StageMetrics
) -> Iterator[SampledChain | JudgedChain | Rejection]:
    """What is to be judged, and what no judge need see. Counts ``graphs`` and ``walks``."""
    for graph in graphs:
        metrics.count("graphs")
        server = servers(graph.server_id)
        if server is None:
            yield Rejection(item=graph.id, reason="server_unknown", detail=graph.server_id)
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
                    operator="arguments", model=RULE, sample=0, outcome=Vote.NO, detail=str(error)
                )
                yield _rejected(graph.id, server, walk, "argument_unsatisfiable", (detail,))
                continue
            yield SampledChain(graph.id, server, walk, steps)


def _generator(graph: ToolGraph, config: ChainsConfig) -> random.Random:
    """A generator seeded by the graph and by how it is walked.

    The vote's samples belong to the seed too: data built so far draws its walks by them.
    """
    seed = config.model_dump(mode="json", exclude={"operators"})
    seed["votes"] = getattr(config.operators.get(VOTE), "samples", 0)
    return random.Random(int(content_id(["walks", graph.id, seed]), 16))


def _satisfiable(walk: Walk, tools: Mapping[str, Tool]) -> tuple[ChainStep, ...]:
    """The walk's steps with a source for every required argument. Raises Unsatisfiable."""
    steps = bind_sources([tools[name] for name in walk.tools])
    for number in range(REPLAYS):
        replay(steps, tools, random.Random(number))
    return steps


async def _judge(candidate: SampledChain, operators: Sequence[Operator]) -> JudgedChain:
    """``candidate`` after each operator in turn; the first that rejects it ends it."""
    notes = PromptNotes()
    verdicts: list[Verdict] = []
    for operator in operators:
        more, reason = await operator.judge(candidate, notes)
        verdicts += more
        if reason:
            return _rejected(
                candidate.graph_id,
                candidate.server,
                candidate.walk,
                reason,
                tuple(verdicts),
                notes.prompt_hash,
            )
    chain = _accepted(candidate, verdicts, notes.prompt_hash)
    verdict = ChainVerdict(
        server_id=candidate.server.id,
        tools=candidate.walk.tools,
        accepted=True,
        reason="",
        chain_id=chain.id,
        verdicts=tuple(verdicts),
        prompt_hash=notes.prompt_hash,
    )
    return JudgedChain(candidate.graph_id, verdict, chain)


def _accepted(candidate: SampledChain, verdicts: Sequence[Verdict], prompt_hash: str) -> Chain:
    votes = [verdict.outcome for verdict in verdicts if verdict.operator == VOTE]
    agreed = (verdict for verdict in verdicts if verdict.outcome is Vote.YES)
    return Chain(
        server_id=candidate.server.id,
        steps=candidate.steps,
        walk_weight=candidate.walk.weight,
        votes_for=votes.count(Vote.YES),
        votes_against=votes.count(Vote.NO),
        task_sketch=next((yes.detail for yes in agreed if yes.model != RULE), ""),
        prompt_hash=prompt_hash,
    )


def _rejected(
    graph_id: str,
    server: ToolServer,
    walk: Walk,
    reason: str,
    verdicts: tuple[Verdict, ...],
    prompt_hash: str = "",
) -> JudgedChain:
    return JudgedChain(
        graph_id,
        ChainVerdict(
            server_id=server.id,
            tools=walk.tools,
            accepted=False,
            reason=reason,
            chain_id="",
            verdicts=verdicts,
            prompt_hash=prompt_hash,
        ),
    )


def measure(metrics: StageMetrics, chain: Chain) -> None:
    """Add one accepted chain to the stage's counts and distributions."""
    metrics.count("chains")
    metrics.distribution("chain_length", [len(chain.steps)])
    metrics.distribution("walk_weight", [chain.walk_weight])
