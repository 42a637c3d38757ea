"""Scores that were measured or not, and rejections: why something was dropped."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from astra.records.base import Frozen, Record, Sparse


class Scored(Sparse):
    """A measured value."""

    sparse: ClassVar[tuple[str, ...]] = ("by_construction",)
    kind: Literal["scored"] = "scored"
    value: float
    by_construction: bool = False
    """Whether it follows from how the item was made, so that no judge was asked."""


class Unscored(Frozen):
    """No score exists (outage, unparsable reply, not applicable). Never stands for a number."""

    kind: Literal["unscored"] = "unscored"
    reason: str


Score = Annotated[Scored | Unscored, Field(discriminator="kind")]


class Rejection(Record):
    """One item that left the pipeline, or one failed try of an item that went on.

    A domain yields it; ``DataStage.reject`` counts it and writes it as a row of
    ``data/rejected/<stage>.parquet``. Nothing in it may depend on the machine or on when it ran
    (a path, a port, a delay), so that a rebuild gives the same bytes: a fault of a live server is
    named by its kind, a fault of an endpoint keeps its text without the address, and the log has
    both in full.
    """

    identity: ClassVar[tuple[str, ...]] = (
        "item", "part", "reason", "detail", "said", "attempt", "final", "repeat",
    )  # fmt: skip
    item: str
    """The id of the row of the stage's input table that it came from; a name where the input is no
    table (a document, a plan of questions)."""
    part: str = ""
    """Which part of the item: a sub-question, a sample, a variant, a chain of tools."""
    reason: str
    """A short code, by which metrics count."""
    detail: str = ""
    """What the rule saw: the text that was refused, the value and its bound."""
    said: str = ""
    """A judge's own words, where one was asked."""
    attempt: int = 0
    """How many tries of the same part had failed before."""
    final: bool = True
    """Whether the item left the pipeline; False for a failed try that was followed by another."""
    repeat: int = 0
    """Tells rows apart that are equal otherwise."""
