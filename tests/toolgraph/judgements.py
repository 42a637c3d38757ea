"""What came of each walk of stage chains, put together again for the tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from astra.records.graph import Chain
from astra.records.score import Rejection
from astra.records.verdict import ChainVerdict
from astra.store.metrics import StageMetrics
from astra.toolgraph.chains import Outcome


@dataclass(frozen=True)
class Judgement:
    verdict: ChainVerdict
    chain: Chain | None
    rejection: Rejection | None


def judgements(outcomes: Iterable[Outcome], metrics: StageMetrics) -> list[Judgement]:
    """Each verdict with its chain or its rejection, which ``metrics`` count as the stage does."""
    found: list[Judgement] = []
    verdict: ChainVerdict | None = None
    for outcome in outcomes:
        if isinstance(outcome, ChainVerdict):
            assert verdict is None
            verdict = outcome
            continue
        assert verdict is not None
        chain = outcome if isinstance(outcome, Chain) else None
        rejection = outcome if isinstance(outcome, Rejection) else None
        found.append(Judgement(verdict, chain, rejection))
        verdict = None
        if rejection is not None:
            metrics.reject(rejection)
    assert verdict is None
    return found
