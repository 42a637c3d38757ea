"""Gates that an instance must pass after its score: it is new, and no text of a benchmark's.

New is what neither words nor what is asked of what tell from an instance that passed before.

A gate is asked about each instance that scored well enough, in the order of their ids. It returns
why the instance must go, or None. A gate may remember what it let pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import combinations

from astra.contamination.index import ContaminationIndex
from astra.qa.knowledge.references import literals
from astra.qa.wording import Problem
from astra.records.base import canonical_json, content_id
from astra.records.qa import QAInstance
from astra.text.similarity import NearDuplicates
from astra.text.words import CJK

Gate = Callable[[QAInstance], Problem | None]


class FreshQuestions:
    """Refuses a main question that is nearly one that passed before."""

    def __init__(self, similarity: float) -> None:
        self._known = NearDuplicates(similarity)

    def __call__(self, instance: QAInstance) -> Problem | None:
        if self._known.add(spaced(instance.main_question)):
            return None
        return ("near_duplicate", instance.main_question)


class FreshSlots:
    """Refuses an instance that asks the same as one before, of nearly the same things.

    Two instances of a split and a composition are alike where fewer than ``differing`` of their
    slots (the literals that they give to steps, in any order) differ, and they share the name of a
    thing: a month or a number in common makes no two questions alike.
    """

    def __init__(self, differing: int) -> None:
        self._differing = differing
        self._known: set[int] = set()
        """Hashes of what instances share with those that are alike: their slots without some."""

    def __call__(self, instance: QAInstance) -> Problem | None:
        slots = _slots(instance)
        if not slots:
            return None  # nothing is stated of what its steps are asked of
        left_out = min(self._differing, len(slots)) - 1
        parts = [
            part
            for part in combinations(slots, len(slots) - left_out)
            if any(names_thing for _, names_thing in part)
        ]
        shape = [instance.split, instance.language, instance.composition]
        shared = {int(content_id([shape, part]), 16) for part in parts or [slots]}
        if self._known.isdisjoint(shared):
            self._known |= shared
            return None
        told = ", ".join(slot for slot, _ in slots)
        return ("near_duplicate_slots", f"{instance.main_question} | {told}")


def _slots(instance: QAInstance) -> list[tuple[str, bool]]:
    """Each literal with what it is first given to, and whether it is a thing's name; sorted."""
    named = set(instance.entities)
    first: dict[str, tuple[str, bool]] = {}
    for step in sorted(instance.sub_questions, key=lambda step: (step.hop_level, step.id)):
        if step.operation is None:
            continue
        for literal in literals(step.operation):
            slot = canonical_json([step.hop_level, step.operation.relation, literal])
            names_thing = isinstance(literal, str) and literal in named
            first.setdefault(canonical_json(literal), (slot, names_thing))
    return sorted(first.values())


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
    return re.sub(rf"([{CJK}])", r" \1 ", text)
