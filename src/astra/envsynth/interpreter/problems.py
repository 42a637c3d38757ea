"""A problem for a code interpreter: what is asked, its typed answer, a program that finds it."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from pydantic import Field

from astra.records.base import Record
from astra.records.qa import Answer, AnswerType, Split
from astra.records.score import Rejection

LEAST_ANSWER = 20
"""Smaller whole numbers are guessed too easily; our choice, as for sub-answers."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


class Problem(Record):
    """A problem on its way to an arena."""

    identity: ClassVar[tuple[str, ...]] = ("question", "answer", "split", "solution", "data")
    question: str
    answer: Answer
    split: Split
    domain: str
    source: str
    composition: str
    """The family or file that the problem comes from."""
    solution: str = ""
    """A program for the tool that prints the answer; empty where none is known."""
    data: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Variables that the tool holds from the start."""
    entities: tuple[str, ...] = ()

    def rejected(self, reason: str, detail: str = "") -> Rejection:
        """Why it must not ship; its question can be read in the detail."""
        told = f"{self.question}\n{detail}" if detail else self.question
        return Rejection(item=self.composition, part=self.split, reason=reason, detail=told)


def guessable(problem: Problem) -> str:
    """Why the answer could be had without a program, or an empty string."""
    value = problem.answer.value
    if problem.answer.type == AnswerType.NUMBER:
        if isinstance(value, int) and abs(value) < LEAST_ANSWER:
            return "small_answer"
        if float(value) in {float(found) for found in _NUMBER.findall(problem.question)}:
            return "answer_in_question"
    elif str(value).casefold() in problem.question.casefold():
        return "answer_in_question"
    return ""
