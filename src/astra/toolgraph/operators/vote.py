"""Vote: models say whether one user task needs exactly the chain (ASTRA section 3.1, check ii).

A vote that nobody cast accepts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pydantic import Field, model_validator

from astra.llm.pool import together
from astra.llm.protocol import ParseError, ProviderError, Teacher
from astra.records.verdict import Outcome, Verdict
from astra.toolgraph.asks import coherence_ask
from astra.toolgraph.judging import VOTE, PanelOptions, SampledChain, abstained


class Options(PanelOptions):
    samples: int = Field(ge=1)
    """How many votes each model casts."""
    quorum: int = Field(ge=1)
    """The fewest votes cast, abstentions left out, that can accept a chain."""
    min_share: float = Field(ge=0, lt=1)
    """More than this share of the votes cast must say yes."""

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.quorum > self.samples * len(self.models):
            raise ValueError("quorum: more votes than are asked for")
        return self


async def judge(
    candidate: SampledChain, models: Sequence[Teacher], options: Options
) -> tuple[list[Verdict], str]:
    """Every vote, and why they reject the chain; the reason is empty if they accept it."""
    verdicts = await together(
        *(_cast(candidate, model, sample) for model in models for sample in range(options.samples))
    )
    yes = sum(verdict.outcome is Outcome.YES for verdict in verdicts)
    cast = sum(verdict.outcome is not Outcome.ABSTAINED for verdict in verdicts)
    if not cast:
        return verdicts, "all_votes_abstained"
    if cast < options.quorum:
        return verdicts, "too_few_votes"
    return verdicts, "" if yes > options.min_share * cast else "incoherent"


async def _cast(candidate: SampledChain, model: Teacher, sample: int) -> Verdict:
    ask = coherence_ask(candidate.server, candidate.tools, candidate.steps, sample)
    try:
        reply = await model.ask(ask)
    except (ProviderError, ParseError) as error:
        return abstained(VOTE, model, sample, error)
    outcome = Outcome.YES if reply.valid else Outcome.NO
    return Verdict(
        operator=VOTE,
        model=model.name,
        sample=sample,
        outcome=outcome,
        detail=reply.task if reply.valid else reply.reason,
    )
