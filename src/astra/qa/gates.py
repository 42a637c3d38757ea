"""Gates that an instance must pass after its score: it is new, and no text of a benchmark's.

A gate is asked about each instance that scored well enough, in the order of their ids. It returns
why the instance must go, or None. A gate may remember what it let pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from astra.contamination.index import ContaminationIndex
from astra.qa.rules import CHINESE, Problem
from astra.records.qa import QAInstance
from astra.text.similarity import NearDuplicates

Gate = Callable[[QAInstance], Problem | None]


class FreshQuestions:
    """Refuses a main question that is nearly one that passed before."""

    def __init__(self, similarity: float) -> None:
        self._known = NearDuplicates(similarity)

    def __call__(self, instance: QAInstance) -> Problem | None:
        if self._known.add(spaced(instance.main_question)):
            return None
        return ("near_duplicate", instance.main_question)


class OwnQuestions:
    """Refuses an instance whose question, or a part of it, shares a text with a benchmark suite."""

    def __init__(self, index: ContaminationIndex) -> None:
        self._index = index

    def __call__(self, instance: QAInstance) -> Problem | None:
        texts = {
            "main question": instance.main_question,
            **{f"sub-question {step.id}": step.question for step in instance.sub_questions},
        }
        overlap = self._index.shared_text(texts.values())
        if overlap is None:
            return None
        shared = [f"{n}: {text}" for n, text in texts.items() if self._index.shared_text([text])]
        return ("contaminated_text", f"{overlap.suite}, {overlap.share:.2f}: {' | '.join(shared)}")


def spaced(text: str) -> str:
    """The text with spaces around each Chinese character: near-duplicates are found by words."""
    return re.sub(rf"([{CHINESE}])", r" \1 ", text)
