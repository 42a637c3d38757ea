"""Splits that never meet: no entity and no composition in two of train, dev and held-out.

The entities of an instance are those that it asks about or answers with. A name that only stands in
rows beside is never met by who solves it.
"""

from __future__ import annotations

from collections.abc import Iterable

from astra.envsynth.known import leaves_of
from astra.qa.knowledge.references import literals
from astra.records.qa import QAInstance, Split
from astra.records.score import Rejection
from astra.text.words import says

PRIORITY = (Split.HELDOUT, Split.DEV, Split.TRAIN)
"""An instance that shares something with an earlier split is dropped: training data give way to
what is measured."""
GUARDED = PRIORITY[:-1]
"""Splits that a later one gives way to. Nothing gives way to the last and largest, so its names
need not be remembered."""


class SplitGuard:
    """The entities and compositions of the measured splits, and who may not use them.

    It reads all instances once; ``violation`` then judges each in a second pass. Memory grows with
    the names in the splits that are measured.
    """

    def __init__(self, instances: Iterable[QAInstance]) -> None:
        self._entities: dict[Split, set[str]] = {split: set() for split in GUARDED}
        self._compositions: dict[Split, set[str]] = {split: set() for split in GUARDED}
        for instance in instances:
            if instance.split in GUARDED:
                self._entities[instance.split].update(met_entities(instance))
                self._compositions[instance.split].add(instance.composition)

    def violation(self, instance: QAInstance) -> Rejection | None:
        """The rejection of an instance that meets an earlier split of ``PRIORITY``."""
        own = met_entities(instance)
        for split in PRIORITY[: PRIORITY.index(instance.split)]:
            shared = self._entities[split].intersection(own)
            if shared:
                detail = f"{min(shared)!r} is also in {split}"
                return Rejection(item=instance.id, reason="split_entity", detail=detail)
            if instance.composition in self._compositions[split]:
                detail = f"{instance.composition!r} is also in {split}"
                return Rejection(item=instance.id, reason="split_composition", detail=detail)
        return None


def met_entities(instance: QAInstance) -> set[str]:
    """The entities that questions, arguments or answers of an instance state, folded."""
    stated = [instance.final_answer.value]
    for step in instance.sub_questions:
        stated += [step.answer.value, literals(step.operation) if step.operation else []]
    values = {_folded(leaf) for _, leaf in leaves_of(stated) if isinstance(leaf, str)}
    questions = [step.question for step in instance.sub_questions]
    text = "\n".join([instance.main_question, *questions])
    return {
        _folded(name) for name in instance.entities if _folded(name) in values or says(name, text)
    }


def _folded(name: str) -> str:
    return " ".join(name.split()).casefold()
