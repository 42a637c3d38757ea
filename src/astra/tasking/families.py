"""Families: a written task and its variants, and how much of their wording they share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

from astra.records.task import Task
from astra.tasking.checks import task_literals
from astra.text.words import plain, words

_CUT = "\n"
"""Stands for a value: no word pair reaches across it."""


def word_pairs(task: Task) -> frozenset[tuple[str, str]]:
    """The pairs of neighbouring words in a task's question, apart from the values it states."""
    text = plain(task.question)
    for literal in sorted(map(plain, task_literals(task.plan)), key=len, reverse=True):
        if literal:
            text = text.replace(literal, _CUT)
    return frozenset(pair for part in text.split(_CUT) for pair in pairwise(words(part)))


def shared_wording(left: frozenset[tuple[str, str]], right: frozenset[tuple[str, str]]) -> float:
    """The share of the shorter question's word pairs that stand in the other one; 0 without any.

    A question with a sentence put in front shares all of its pairs with the one it was made from.
    """
    least = min(len(left), len(right))
    return len(left & right) / least if least else 0.0


class TaskFamily:
    """The wordings of one task and its variants so far."""

    def __init__(self, original: Task, most_shared: float | None) -> None:
        """``most_shared``: from which share of word pairs on a variant is a copy; None: never."""
        self._most_shared = most_shared
        self._wordings = [word_pairs(original)]

    def add(self, variant: Task) -> bool:
        """True if the variant is worded on its own (and is compared with from now on)."""
        wording = word_pairs(variant)
        if self._most_shared is not None and any(
            shared_wording(wording, other) >= self._most_shared for other in self._wordings
        ):
            return False
        self._wordings.append(wording)
        return True


def mean_shared_wording(family: Sequence[Task]) -> float:
    """How much two tasks of a family share on average; the family has at least two."""
    shares = [
        shared_wording(left, right) for left, right in combinations(map(word_pairs, family), 2)
    ]
    return sum(shares) / len(shares)
