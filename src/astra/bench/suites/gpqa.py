"""GPQA-Diamond: 198 questions with four options, rStar2's test of transfer beyond mathematics.

Options are shuffled by ``shuffle_seed`` and question, so every checkpoint sees the same order.
The set is gated on the hub: accept its terms there and set HF_TOKEN, or supply its CSV.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from astra.bench.harness.protocol import DriverProcess, SuiteConfig
from astra.bench.harness.questions import (
    Question,
    QuestionSource,
    field,
    questions_driver,
    read_rows,
)
from astra.records.base import content_id
from astra.settings import StageConfig, validate

LETTERS = "ABCD"
TASK = (
    "Answer the following multiple choice question. Reason step by step and end with a line "
    "'Answer: LETTER', where LETTER is one of A, B, C and D.\n\n"
)
HUB = QuestionSource(dataset="Idavidrein/gpqa", config="gpqa_diamond", split="train")


class GpqaOptions(StageConfig):
    source: QuestionSource = HUB
    """A supplied file has the set's columns: Question, Correct Answer, Incorrect Answer 1 to 3."""
    shuffle_seed: int = Field(default=0)


@dataclass(frozen=True)
class Gpqa:
    name: str = "gpqa"
    score: str = "accuracy"
    roles: tuple[str, ...] = ()

    def complete(self, options: dict[str, Any]) -> dict[str, Any]:
        return validate("bench.suites.gpqa", options, GpqaOptions).model_dump(mode="json")

    def driver(self, config: SuiteConfig) -> DriverProcess:
        return questions_driver(self.name, questions(GpqaOptions.model_validate(config.options)))

    def prompts(self, options: Mapping[str, Any]) -> list[str]:
        made = questions(GpqaOptions.model_validate(options))
        return [question.prompt.removeprefix(TASK) for question in made]


def questions(options: GpqaOptions) -> list[Question]:
    made: list[Question] = []
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
        made.append(
            Question(
                id=name, category=str(row.get("High-level domain") or "all"),
                prompt=f"{TASK}{asked}\n\n{listed}", gold=LETTERS[order.index(0)], kind="choice",
            )
        )  # fmt: skip
    return made


SUITE = Gpqa()
