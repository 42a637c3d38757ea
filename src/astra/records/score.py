"""Measured and not measured values, and the reason something was dropped."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from astra.records.base import Frozen


class Scored(Frozen):
    kind: Literal["scored"] = "scored"
    value: float


class Unscored(Frozen):
    """No score exists (outage, unparsable reply, not applicable). Never stands for a number."""

    kind: Literal["unscored"] = "unscored"
    reason: str


Score = Annotated[Scored | Unscored, Field(discriminator="kind")]


class Rejection(Frozen):
    """One item that left the pipeline: ``reason`` is a short code that metrics count by."""

    item: str
    reason: str
    detail: str = ""
