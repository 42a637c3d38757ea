"""Which of the teacher's replies a failed try is about: that one is asked for again, no other."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from astra.envsynth.static import Problem
from astra.llm.protocol import ParseError, ProviderError


class ToolPart(StrEnum):
    """A part of a tool, in the order in which they are asked for. Each rests on those before it."""

    DOCUMENT = "document"
    CALL = "call"
    CODE = "code"


OF_DOCUMENT = frozenset(
    {
        "bad_name", "no_description", "bad_schema", "answer_in_document", "default_in_document",
        "unknown_filter", "page_base", "cell_violates_schema", "impossible",
        "too_few_perturbations", "unreachable", "untold_argument", "optional_argument",
        "other_unit", "answer_violates_schema",
    }
)  # fmt: skip
"""Reasons that neither another call nor other code can remove."""
OF_CALL = frozenset({"call_violates_schema", "other_value", "unreachable_argument"})
"""Reasons that lie in the arguments."""
OUTAGES = frozenset({"provider_error", "sandbox_infra"})
"""Reasons that say nothing about what the teacher wrote."""


@dataclass(frozen=True)
class FailedTry:
    """A failed try: what was wrong, and with which part."""

    part: ToolPart
    problem: Problem


def fault_of(problem: Problem) -> FailedTry:
    """The fault of a tool that is complete: what is said of neither document nor call is said of
    the code.
    """
    reason = problem[0]
    if reason in OF_DOCUMENT:
        return FailedTry(ToolPart.DOCUMENT, problem)
    return FailedTry(ToolPart.CALL if reason in OF_CALL else ToolPart.CODE, problem)


def failure(error: ProviderError | ParseError) -> Problem:
    """The problem of a try whose ask got no usable reply."""
    reason = "provider_error" if isinstance(error, ProviderError) else "parse_error"
    return reason, str(error)[:200]
