"""Outcomes: what a final answer says where it is no value, ``done`` or why nothing was done.

Where a data set has kinds that end in an outcome, every one of its questions ends by naming the
outcomes, whatever its own kind; its wording then does not tell the kind.
"""

from __future__ import annotations

from collections.abc import Mapping

from astra.agent.prompt import MISSING_VALUE, NO_TOOL
from astra.records.qa import QuestionKind

DONE, ALREADY_DONE, NOT_POSSIBLE = "done", "already done", "not possible"
OUTCOMES: Mapping[str, Mapping[QuestionKind, str]] = {
    "en": {
        QuestionKind.WRITE: DONE,
        QuestionKind.ALREADY_SATISFIED: ALREADY_DONE,
        QuestionKind.INFEASIBLE: NOT_POSSIBLE,
        QuestionKind.MISSING_TOOL: NO_TOOL,
        QuestionKind.MISSING_PARAMETER: MISSING_VALUE,
    },
    "zh": {
        QuestionKind.WRITE: "已完成",
        QuestionKind.ALREADY_SATISFIED: "早已完成",
        QuestionKind.INFEASIBLE: "无法办到",
        QuestionKind.MISSING_TOOL: "没有工具",
        QuestionKind.MISSING_PARAMETER: "缺少信息",
    },
}
"""Language -> kind -> the outcome that it ends in."""
FAILURES = (QuestionKind.MISSING_TOOL, QuestionKind.MISSING_PARAMETER)
"""Kinds whose outcome a question that only reads can have too, in place of a value."""


def closing(language: str, acts: bool, reads: bool) -> str:
    """The sentence that ends a question: every outcome it could have, going by its wording.

    ``acts``: the question asks for an action. ``reads``: it asks for a value, which is its answer
    if all goes well.
    """
    possible = [
        text
        for kind, text in OUTCOMES[language].items()
        if (acts or kind in FAILURES) and not (reads and kind is QuestionKind.WRITE)
    ]
    named = [f"“{text}”" if language == "zh" else f'"{text}"' for text in possible]
    if language == "zh":
        opening = "如果办不到，请回答" if reads else "办完后请回答"
        return f"{opening}{'、'.join(named[:-1])}或{named[-1]}。"
    listed = f"{', '.join(named[:-1])} or {named[-1]}"
    return f"If you cannot, answer {listed}." if reads else f"Answer {listed}."


def closings(language: str) -> tuple[str, ...]:
    """Every sentence that ``closing`` gives in a language; none where it has no outcomes."""
    asked = ((True, False), (False, True), (True, True))
    return tuple(closing(language, *sorts) for sorts in asked if language in OUTCOMES)
