"""The operators that judge a chain: *vote* and *back-translation* (ASTRA section 3.1, check ii).

Both run over several models, and neither passes a chain that nobody judged: a model that gives
no usable answer abstains, and abstentions never count as a yes. Further operators are files of
``known``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from astra.llm.pool import together
from astra.llm.protocol import ParseError, ProviderError, Teacher
from astra.plugins import find
from astra.records.graph import ChainStep
from astra.records.tool import Tool, ToolServer
from astra.records.verdict import Outcome, Verdict
from astra.toolgraph import operators
from astra.toolgraph.asks import back_chain_ask, back_query_ask, coherence_ask
from astra.toolgraph.config import BackTranslationConfig, OperatorConfig, VoteConfig
from astra.toolgraph.walks import Walk

VOTE = "vote"
BACK_TRANSLATION = "back_translation"


@dataclass(frozen=True)
class SampledChain:
    """A walk whose every argument has a source, to be judged."""

    graph_id: str
    server: ToolServer
    walk: Walk
    steps: tuple[ChainStep, ...]

    @property
    def tools(self) -> list[Tool]:
        """The chain's tools, each once."""
        named = {tool.name: tool for tool in self.server.tools}
        return [named[name] for name in dict.fromkeys(self.walk.tools)]


Operator = Callable[[SampledChain], Awaitable[tuple[list[Verdict], str]]]
"""Its verdicts, and why they reject the chain; an empty reason accepts it."""


def build_operator(config: OperatorConfig, models: Sequence[Teacher]) -> Operator:
    """The operator that ``toolgraph/known/<name>.py`` holds."""
    module = find(operators, config.name)
    return partial(module.judge, models=models, options=module.Options(**config.options))


async def vote(
    candidate: SampledChain, judges: Sequence[Teacher], config: VoteConfig
) -> tuple[list[Verdict], str]:
    """Every vote, and why they reject the chain; the reason is empty if they accept it."""
    verdicts = await together(
        *(_cast(candidate, judge, sample) for judge in judges for sample in range(config.samples))
    )
    yes = sum(verdict.outcome is Outcome.YES for verdict in verdicts)
    cast = sum(verdict.outcome is not Outcome.ABSTAINED for verdict in verdicts)
    if not cast:
        return verdicts, "all_votes_abstained"
    if cast < config.quorum:
        return verdicts, "too_few_votes"
    return verdicts, "" if yes > config.min_share * cast else "incoherent"


async def _cast(candidate: SampledChain, judge: Teacher, sample: int) -> Verdict:
    ask = coherence_ask(candidate.server, candidate.tools, candidate.steps, sample)
    try:
        reply = await judge.ask(ask)
    except (ProviderError, ParseError) as error:
        return _abstained(VOTE, judge, sample, error)
    outcome = Outcome.YES if reply.valid else Outcome.NO
    return Verdict(
        operator=VOTE,
        model=judge.name,
        sample=sample,
        outcome=outcome,
        detail=reply.task if reply.valid else reply.reason,
    )


async def back_translate(
    candidate: SampledChain, models: Sequence[Teacher], config: BackTranslationConfig
) -> tuple[list[Verdict], str]:
    """Each model's attempts, and why they reject the chain; empty if they accept it."""
    tried = await together(*(_attempts(candidate, model, config.attempts) for model in models))
    verdicts = [verdict for found in tried for verdict in found]
    agreeing = sum(verdict.outcome is Outcome.YES for verdict in verdicts)
    if all(verdict.outcome is Outcome.ABSTAINED for verdict in verdicts):
        return verdicts, "no_back_translation"
    return verdicts, "" if agreeing > config.min_share * len(models) else "not_recovered"


async def _attempts(candidate: SampledChain, model: Teacher, most: int) -> list[Verdict]:
    """One model's attempts, the first yes the last of them."""
    verdicts: list[Verdict] = []
    while len(verdicts) < most and not (verdicts and verdicts[-1].outcome is Outcome.YES):
        verdicts.append(await _there_and_back(candidate, model, len(verdicts)))
    return verdicts


async def _there_and_back(candidate: SampledChain, model: Teacher, attempt: int) -> Verdict:
    """Chain -> request -> chain: exactly the same tools in the same order, or no."""
    walked = candidate.walk.tools

    def verdict(outcome: Outcome, detail: str) -> Verdict:
        return Verdict(
            operator=BACK_TRANSLATION,
            model=model.name,
            sample=attempt,
            outcome=outcome,
            detail=detail,
        )

    try:
        written = await model.ask(
            back_query_ask(candidate.server, candidate.tools, candidate.steps, attempt)
        )
        if not written.valid:
            return verdict(Outcome.NO, f"no request: {written.query}")
        named = [name for name in walked if _gives_away(name, written.query)]
        if named:
            return verdict(Outcome.NO, f"the request names {named[0]}: {written.query}")
        found = await model.ask(back_chain_ask(candidate.server, written.query, attempt))
    except (ProviderError, ParseError) as error:
        return _abstained(BACK_TRANSLATION, model, attempt, error)
    if found.chain == walked:
        return verdict(Outcome.YES, written.query)
    return verdict(Outcome.NO, f"{' > '.join(found.chain) or 'no tools'}: {written.query}")


def _gives_away(tool: str, request: str) -> bool:
    """Whether a request holds a tool's name as such; ``search`` is also a word of English."""
    return not tool.isalpha() and tool in request


def _abstained(operator: str, model: Teacher, sample: int, error: Exception) -> Verdict:
    return Verdict(
        operator=operator,
        model=model.name,
        sample=sample,
        outcome=Outcome.ABSTAINED,
        detail=str(error)[:300],
    )
