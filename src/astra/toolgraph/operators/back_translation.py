"""Back-translation: models write a chain's request and find the chain again from it alone.

ASTRA section 3.1, check ii; models and attempts as in ASTRA's release.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from astra.llm.pool import together
from astra.llm.protocol import ParseError, ProviderError, Teacher
from astra.records.verdict import Outcome, Verdict
from astra.toolgraph.asks import back_chain_ask, back_query_ask
from astra.toolgraph.judging import PanelOptions, SampledChain, abstained

NAME = "back_translation"


class Options(PanelOptions):
    attempts: int = Field(ge=1)
    """The most tries of each model; one that finds the chain is enough."""
    min_share: float = Field(ge=0, lt=1)
    """More than this share of all models must find it; one that gives no answer does not."""


async def judge(
    candidate: SampledChain, models: Sequence[Teacher], options: Options
) -> tuple[list[Verdict], str]:
    """Each model's attempts, and why they reject the chain; empty if they accept it."""
    tried = await together(*(_attempts(candidate, model, options.attempts) for model in models))
    verdicts = [verdict for attempts in tried for verdict in attempts]
    agreeing = sum(verdict.outcome is Outcome.YES for verdict in verdicts)
    if all(verdict.outcome is Outcome.ABSTAINED for verdict in verdicts):
        return verdicts, "no_back_translation"
    return verdicts, "" if agreeing > options.min_share * len(models) else "not_recovered"


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
            operator=NAME,
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
        recovered = await model.ask(back_chain_ask(candidate.server, written.query, attempt))
    except (ProviderError, ParseError) as error:
        return abstained(NAME, model, attempt, error)
    if recovered.chain == walked:
        return verdict(Outcome.YES, written.query)
    return verdict(Outcome.NO, f"{' > '.join(recovered.chain) or 'no tools'}: {written.query}")


def _gives_away(tool: str, request: str) -> bool:
    """Whether a request holds a tool's name as such; ``search`` is also a word of English."""
    return not tool.isalpha() and tool in request
