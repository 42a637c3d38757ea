"""Facts of table ``chains``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from astra.estimate.asks import Amount
from astra.estimate.sampling import mean, sample
from astra.records.graph import Chain


@dataclass(frozen=True)
class ChainFacts:
    """The chains of table ``chains``."""

    rows: Amount
    steps: float
    """Calls of a chain."""


def chains_of(table: Path) -> ChainFacts:
    """Facts of table ``chains``."""
    rows, some = sample(table, Chain)
    return ChainFacts(rows, mean(len(chain.steps) for chain in some))
