"""What an instance that scored well enough has to pass besides: it is new, and no benchmark's.

A gate is asked about each such instance in order of id and says why it must go, or None. Gates may
remember what they let pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from astra.contamination.index import ContaminationIndex
from astra.qa.rules import CHINESE
from astra.records.qa import QAInstance
from astra.records.score import Rejection
from astra.text.similarity import NearDuplicates

Gate = Callable[[QAInstance], Rejection | None]


class FreshQuestions:
    """Refuses a main question that is nearly one that passed before."""

    def __init__(self, similarity: float) -> None:
        self._known = NearDuplicates(similarity)

    def __call__(self, instance: QAInstance) -> Rejection | None:
        if self._known.add(spaced(instance.main_question)):
            return None
        return Rejection(item=instance.id, reason="near_duplicate")


class OwnQuestions:
    """Refuses an instance whose question, or a part of it, shares a text with a benchmark suite."""

    def __init__(self, index: ContaminationIndex) -> None:
        self._index = index

    def __call__(self, instance: QAInstance) -> Rejection | None:
        texts = [instance.main_question, *(step.question for step in instance.sub_questions)]
        overlap = self._index.shared_text(texts)
        if overlap is None:
            return None
        detail = f"{overlap.suite}, {overlap.share:.2f}"
        return Rejection(item=instance.id, reason="contaminated_text", detail=detail)


def spaced(text: str) -> str:
    """Text whose Chinese characters stand apart, each a word of its own, as overlap counts them."""
    return re.sub(rf"([{CHINESE}])", r" \1 ", text)
