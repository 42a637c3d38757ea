"""Back-translation: models write a chain's request and find the chain again from it alone.

ASTRA section 3.1, check ii; models and attempts as in ASTRA's release. Models are asked in rounds
of the fewest that can decide, in a fixed order, and none once it is decided.
"""

from __future__ import annotations

import math
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
    """The attempts, and why they reject the chain; the reason is empty if they accept it."""
    tried: list[list[Verdict]] = [[] for _ in models]
    verdicts: list[Verdict] = []
    while asked := _round(tried, options):
        more = await together(
            *(_there_and_back(candidate, models[place], len(tried[place])) for place in asked)
        )
        verdicts += more
        for place, verdict in zip(asked, more, strict=True):
            tried[place].append(verdict)
    if all(verdict.outcome is Outcome.ABSTAINED for verdict in verdicts):
        return verdicts, "no_back_translation"
    accepted = sum(map(_found, tried)) > options.min_share * len(models)
    return verdicts, "" if accepted else "not_recovered"


def _round(tried: Sequence[Sequence[Verdict]], options: Options) -> list[int]:
    """The models to ask next, by their places: the fewest that can decide, least tried first.

    None once enough have found the chain, or too few still can.
    """
    found = sum(map(_found, tried))
    missing = math.floor(options.min_share * len(tried)) + 1 - found
    left = [
        place
        for place, attempts in enumerate(tried)
        if not _found(attempts) and len(attempts) < options.attempts
    ]
    if len(left) < missing:
        return []
    return sorted(left, key=lambda place: len(tried[place]))[: max(missing, 0)]


def _found(attempts: Sequence[Verdict]) -> bool:
    return any(verdict.outcome is Outcome.YES for verdict in attempts)


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
