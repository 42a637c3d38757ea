"""GPQA-Diamond, 198 questions with four options: the last letter stated is the answer, caged.

The set is rStar2's test of transfer beyond mathematics. It has no official checker:
``drivers/play_questions.py`` asks and finds the letter.
Options are shuffled by ``shuffle_seed`` and question, so every checkpoint sees the same order.
The set is gated on the hub: accept its terms there and set HF_TOKEN, or supply its CSV.
"""

from __future__ import annotations

import random

from pydantic import Field

from astra.bench.harness.protocol import DriverProcess, Suite
from astra.bench.harness.questions import (
    Question,
    QuestionSource,
    field,
    questions_driver,
    read_rows,
)
from astra.records.base import content_id
from astra.settings import StageConfig

LETTERS = "ABCD"
TASK = (
    "Answer the following multiple choice question. Reason step by step and end with a line "
    "'Answer: LETTER', where LETTER is one of A, B, C and D.\n\n"
)
HUB = QuestionSource(dataset="Idavidrein/gpqa", config="gpqa_diamond", split="train")


class Options(StageConfig):
    source: QuestionSource = HUB
    """A supplied file has the set's columns: Question, Correct Answer, Incorrect Answer 1 to 3."""
    shuffle_seed: int = Field(default=0)


def driver(options: Options) -> DriverProcess:
    return questions_driver("gpqa", questions(options))


def prompts(options: Options) -> list[str]:
    return [question.prompt.removeprefix(TASK) for question in questions(options)]


def questions(options: Options) -> list[Question]:
    """The problems with their options in the drawn order. Raises SuiteError for bad rows."""
    problems: list[Question] = []
    for row in read_rows(options.source):
        asked = field(row, ("Question",))
        right = field(row, ("Correct Answer",))
        choices = [right, *(field(row, (f"Incorrect Answer {at}",)) for at in (1, 2, 3))]
        name = str(row.get("Record ID") or content_id(asked))
        order = list(range(len(choices)))
        random.Random(int(content_id([options.shuffle_seed, name]), 16)).shuffle(order)
        listed = "\n".join(
            f"{letter}) {choices[at]}" for letter, at in zip(LETTERS, order, strict=True)
        )
        problems.append(
            Question(
                id=name, category=str(row.get("High-level domain") or "all"),
                prompt=f"{TASK}{asked}\n\n{listed}", gold=LETTERS[order.index(0)], kind="choice",
            )
        )  # fmt: skip
    return problems


SUITE = Suite(name="gpqa", score="accuracy", driver=driver, prompts=prompts)
