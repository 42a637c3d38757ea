"""Stage ``chains``: walks over tool graphs, checked for arguments and coherence (ASTRA 3.1)."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from astra.llm.notes import PromptNotes
from astra.llm.pool import flow
from astra.llm.protocol import ModelConfig, Teacher
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
from astra.toolgraph.judging import Operator, SampledChain, back_translate, build_operator, vote
from astra.toolgraph.walks import Walk, sample_walks

RULE = "rule"
"""The model of a verdict that no model gave."""
REPLAYS = 2
"""Made-up runs that every chain must survive; values that fit by chance rarely fit each time."""


@dataclass(frozen=True)
class Judges:
    """The models of both operators, and further ones; back-translation without models is off."""

    vote: Sequence[Teacher]
    back_translation: Sequence[Teacher] = ()
    operators: Sequence[Operator] = ()


def build_judges(
    config: ChainsConfig, panel: Callable[[Sequence[ModelConfig]], Sequence[Teacher]]
) -> Judges:
    """The judges that the configuration names; ``panel`` makes the models of a role."""
    back = config.back_translation
    return Judges(
        panel(config.vote.sampled().models),
        panel(back.sampled().models) if back else (),
        [build_operator(one, panel(one.models)) for one in config.operators],
    )


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
        against = [one for one in self.verdict.verdicts if one.outcome is not Vote.YES]
        rejection = Rejection(
            item=self.graph_id,
            part=" > ".join(self.verdict.tools),
            reason=self.verdict.reason,
            detail="\n".join(one.detail for one in against if one.model == RULE),
            said="\n".join(_said(one) for one in against if one.model != RULE),
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
    judges: Judges,
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
        judged = await _judge(candidate, judges, config)
        for operator in judges.operators:
            if judged.chain is not None:
                judged = await _operate(candidate, judged, operator)
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


async def _judge(candidate: SampledChain, judges: Judges, config: ChainsConfig) -> JudgedChain:
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
            candidate.graph_id,
            candidate.server,
            candidate.walk,
            reason,
            tuple(verdicts),
            notes.prompt_hash,
        )
    agreed = [verdict for verdict in votes if verdict.outcome is Vote.YES]
    chain = Chain(
        server_id=candidate.server.id,
        steps=candidate.steps,
        walk_weight=candidate.walk.weight,
        votes_for=len(agreed),
        votes_against=sum(verdict.outcome is Vote.NO for verdict in votes),
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
    return JudgedChain(candidate.graph_id, verdict, chain)


async def _operate(candidate: SampledChain, judged: JudgedChain, operator: Operator) -> JudgedChain:
    """``judged``, an accepted chain, with what one more operator says of it."""
    verdicts, reason = await operator(candidate)
    said = judged.verdict.model_dump(exclude={"id"})
    said["verdicts"] = (*judged.verdict.verdicts, *verdicts)
    if reason:
        said |= {"accepted": False, "reason": reason, "chain_id": ""}
    verdict = ChainVerdict.model_validate(said)
    return JudgedChain(candidate.graph_id, verdict, None if reason else judged.chain)


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
