"""Stage ``chains``: walks over tool graphs, checked for arguments and coherence (ASTRA 3.1)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from astra.llm.notes import PromptNotes
from astra.llm.pool import sharded_flow
from astra.records.base import content_id
from astra.records.graph import ArgumentOrigin, Chain, ChainStep, ProposedChain, ToolGraph
from astra.records.score import Rejection
from astra.records.tool import Tool, ToolServer
from astra.records.verdict import ChainVerdict, Verdict
from astra.records.verdict import Outcome as Vote
from astra.store.metrics import StageMetrics
from astra.toolgraph.arguments import Binder, Unsatisfiable, replay, taken_from_results
from astra.toolgraph.config import ChainsConfig
from astra.toolgraph.graph import as_networkx
from astra.toolgraph.judging import VOTE, Operator, SampledChain, place
from astra.toolgraph.walks import sample_walks

RULE = "rule"
"""The model of a verdict that no model gave."""
REPLAYS = 2
"""How many made-up runs every chain must survive."""


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
    # Why a model abstained is a fault of its endpoint, which the log tells.
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

    return sharded_flow(_candidates(graphs, servers, config, metrics), work, open_items)


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
        for candidate in _sampled(graph, server, config):
            metrics.count("walks")
            try:
                metrics.count("values_not_drawn", _replayed(candidate.steps, tools))
            except Unsatisfiable as error:
                detail = Verdict(
                    operator="arguments", model=RULE, sample=0, outcome=Vote.NO, detail=str(error)
                )
                yield _rejected(candidate, "argument_unsatisfiable", (detail,))
                continue
            yield candidate


def _sampled(graph: ToolGraph, server: ToolServer, config: ChainsConfig) -> list[SampledChain]:
    """The walks of a graph that are to be judged, with the sources of their arguments.

    The graph alone decides which walks are drawn: more chains are the same ones and others.
    """
    binder = Binder(server.tools, graph.proposed)
    walks = sample_walks(
        as_networkx(graph),
        random.Random(int(content_id(["walks", graph.id]), 16)),
        walks=config.walks,
        min_length=config.min_length,
        max_length=config.max_length,
        visits={} if config.acyclic else most_visits(graph.proposed),
    )
    drawn = (
        SampledChain(graph.id, server, walk, binder.bind(walk.tools), binder.sketch(walk.tools))
        for walk in walks
    )
    if not config.dependent_first:
        return list(islice(drawn, config.max_chains))
    return preferred(list(drawn), config.max_chains)


def most_visits(proposed: Iterable[ProposedChain]) -> dict[str, int]:
    """How often one proposed chain calls each tool at most."""
    most: Counter[str] = Counter()
    for one in proposed:
        most |= Counter(step.tool for step in one.steps)
    return dict(most)


def preferred(drawn: Sequence[SampledChain], most: int) -> list[SampledChain]:
    """The ``most`` chains that are judged: as many single calls as a plain cut would leave.

    Of the others those come first in which a step takes an earlier result, and among equals those
    that were proposed as a whole. A larger ``most`` adds to the chains of a smaller one.
    """
    single = sum(len(chain.steps) == 1 for chain in drawn[:most])
    singles = [chain for chain in drawn if len(chain.steps) == 1]
    longer = [chain for chain in drawn if len(chain.steps) > 1]
    longer.sort(key=lambda chain: (not any(taken_from_results(chain.steps)), not chain.sketch))
    return [*singles[:single], *longer[: min(most, len(drawn)) - single]]


def _replayed(steps: Sequence[ChainStep], tools: Mapping[str, Tool]) -> int:
    """How many values of the user's no rule could draw. Raises Unsatisfiable."""
    calls = [replay(steps, tools, random.Random(number)) for number in range(REPLAYS)]
    return sum(
        source.origin is ArgumentOrigin.TASK and name not in call
        for step, call in zip(steps, calls[0], strict=True)
        for name, source in step.arguments.items()
    )


async def _judge(candidate: SampledChain, operators: Sequence[Operator]) -> JudgedChain:
    """``candidate`` after each operator in turn; the first that rejects it ends it."""
    notes = PromptNotes()
    verdicts: list[Verdict] = []
    for operator in operators:
        more, reason = await operator.judge(candidate, notes)
        verdicts += more
        if reason:
            return _rejected(candidate, reason, tuple(verdicts), notes.prompt_hash)
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
    written = (yes.detail for yes in agreed if yes.model != RULE)
    return Chain(
        server_id=candidate.server.id,
        steps=candidate.steps,
        walk_weight=candidate.walk.weight,
        votes_for=votes.count(Vote.YES),
        votes_against=votes.count(Vote.NO),
        task_sketch=next(written, candidate.sketch),
        dependencies=_dependencies(candidate.steps, verdicts),
        prompt_hash=prompt_hash,
    )


def _dependencies(steps: Sequence[ChainStep], verdicts: Sequence[Verdict]) -> int:
    """How many arguments most approving votes say the user could not have stated as well."""
    taken = [place(step, name) for step, name in taken_from_results(steps)]
    approving = [v for v in verdicts if v.operator == VOTE and v.outcome is Vote.YES]
    if not approving:
        return len(taken)
    needed = Counter(name for vote in approving for name in vote.needed)
    return sum(2 * needed[name] > len(approving) for name in taken)


def _rejected(
    candidate: SampledChain, reason: str, verdicts: tuple[Verdict, ...], prompt_hash: str = ""
) -> JudgedChain:
    verdict = ChainVerdict(
        server_id=candidate.server.id,
        tools=candidate.walk.tools,
        accepted=False,
        reason=reason,
        chain_id="",
        verdicts=verdicts,
        prompt_hash=prompt_hash,
    )
    return JudgedChain(candidate.graph_id, verdict)


def measure(metrics: StageMetrics, chain: Chain) -> None:
    """Add one accepted chain to the stage's counts and distributions.

    ``dependent_share`` is the share of the chains of several steps in which a step needs an
    earlier result.
    """
    metrics.count("chains")
    metrics.distribution("chain_length", [len(chain.steps)])
    metrics.distribution("walk_weight", [chain.walk_weight])
    if len(chain.steps) > 1:
        metrics.count("chains_of_several_steps")
        metrics.count("dependent_chains", chain.dependencies > 0)
        metrics.distribution("dependencies", [chain.dependencies])
        share = metrics.counts["dependent_chains"] / metrics.counts["chains_of_several_steps"]
        metrics.value("dependent_share", round(share, 4))
