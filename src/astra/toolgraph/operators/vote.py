"""Vote: models say whether one user task needs exactly the chain (ASTRA section 3.1, check ii).

A vote that nobody cast accepts nothing. Votes are asked for in rounds of the fewest that can
decide, in a fixed order, and none once it is decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from pydantic import Field, model_validator

from astra.llm.pool import together
from astra.llm.protocol import ParseError, ProviderError, Teacher
from astra.records.verdict import Outcome, Verdict
from astra.toolgraph.asks import coherence_ask
from astra.toolgraph.judging import VOTE, PanelOptions, SampledChain, abstained, place


class Options(PanelOptions):
    samples: int = Field(ge=1)
    """How many votes each model casts at most."""
    quorum: int = Field(ge=1)
    """The fewest votes cast, abstentions left out, that can accept a chain."""
    min_share: float = Field(ge=0, lt=1)
    """More than this share of the votes cast must say yes."""

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.quorum > self.samples * len(self.models):
            raise ValueError("quorum: more votes than are asked for")
        return self


@dataclass(frozen=True)
class Tally:
    """Votes so far; ``left`` were not asked for yet."""

    yes: int
    cast: int
    left: int

    def after(self, yes: int, no: int) -> Tally:
        """The tally if the next votes were these."""
        return Tally(self.yes + yes, self.cast + yes + no, self.left - yes - no)

    def decision(self, options: Options) -> str | None:
        """Why the chain is rejected, "" if it is accepted, None while votes left can change it."""
        most = self.cast + self.left
        if self.cast >= options.quorum and self.yes > options.min_share * most:
            return ""
        if most < options.quorum:
            return "too_few_votes" if self.cast else "all_votes_abstained"
        if self.yes + self.left <= options.min_share * most:
            return "incoherent"
        return None

    def round(self, options: Options) -> int:
        """The fewest further votes that can decide, if they agree."""
        return next(
            number
            for number in range(1, self.left + 1)
            if self.after(number, 0).decision(options) is not None
            or self.after(0, number).decision(options) is not None
        )


async def judge(
    candidate: SampledChain, models: Sequence[Teacher], options: Options
) -> tuple[list[Verdict], str]:
    """The votes asked for, and why they reject the chain; the reason is empty if they accept it."""
    turns = [(model, sample) for sample in range(options.samples) for model in models]
    verdicts: list[Verdict] = []
    while (reason := (tally := _tally(verdicts, len(turns))).decision(options)) is None:
        asked = turns[len(verdicts) : len(verdicts) + tally.round(options)]
        verdicts += await together(*(_cast(candidate, model, sample) for model, sample in asked))
    return verdicts, reason


def _tally(verdicts: Sequence[Verdict], turns: int) -> Tally:
    yes = sum(verdict.outcome is Outcome.YES for verdict in verdicts)
    cast = sum(verdict.outcome is not Outcome.ABSTAINED for verdict in verdicts)
    return Tally(yes, cast, turns - len(verdicts))


async def _cast(candidate: SampledChain, model: Teacher, sample: int) -> Verdict:
    ask = coherence_ask(candidate.server, candidate.tools, candidate.steps, sample)
    try:
        reply = await model.ask(ask)
    except (ProviderError, ParseError) as error:
        return abstained(VOTE, model, sample, error)
    needed = [place(one.step, one.argument) for one in reply.dependencies if not one.statable]
    return Verdict(
        operator=VOTE,
        model=model.name,
        sample=sample,
        outcome=Outcome.YES if reply.valid else Outcome.NO,
        detail=reply.task if reply.valid else reply.reason,
        needed=tuple(needed),
    )
