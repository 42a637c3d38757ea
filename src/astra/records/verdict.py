"""What was decided about every candidate chain, accepted or not (stage ``chains``)."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from astra.records.base import Record, Sparse


class Outcome(StrEnum):
    """What a verdict says of a chain."""

    YES = "yes"
    NO = "no"
    ABSTAINED = "abstained"  # no usable answer: outage, or a reply that is not one


class Verdict(Sparse):
    """One answer of one operator; ``model`` is the backend and model that gave it."""

    sparse: ClassVar[tuple[str, ...]] = ("needed",)
    operator: str
    model: str
    sample: int
    outcome: Outcome
    detail: str
    """The task that was written for a yes; why the answer is no; the kind of fault where there is
    none, whose text the log has."""
    needed: tuple[str, ...] = ()
    """The arguments (``1.order``: of step 1) that take from an earlier result what the user could
    not have stated as well. Empty where the operator does not ask for it."""


class ChainVerdict(Record):
    """A sampled chain with every verdict on it, accepted or not."""

    identity: ClassVar[tuple[str, ...]] = ("server_id", "tools")
    server_id: str
    tools: tuple[str, ...]
    accepted: bool
    reason: str
    """Why it was rejected; empty for an accepted chain."""
    chain_id: str
    """The chain's record, where it was accepted."""
    verdicts: tuple[Verdict, ...]
    prompt_hash: str = ""
    """Hashes of the prompt templates whose answers it holds, joined by ``+``."""
