"""AIME 2024 and 2025, 30 problems each: the last box, compared by math-verify, caged.

Answers are integers from 0 to 999. ``drivers/play_questions.py`` asks and compares.

The paper takes 32 samples at temperature 0.6 and top-p 0.95 at each of two settings, top-k 20 and
none: two entries of ``bench.suites`` with ``tries: 32`` and their own ``decoding.top_k``.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from astra.bench.harness.protocol import DriverProcess, Suite, SuiteError
from astra.bench.harness.questions import (
    Question,
    QuestionSource,
    field,
    questions_driver,
    read_rows,
)
from astra.settings import StageConfig

Year = Literal["2024", "2025"]
TASK = (
    "Solve the following problem. Reason step by step and write the final answer, an integer from "
    "0 to 999, as \\boxed{ANSWER} at the end.\n\n"
)
SOURCES: dict[Year, QuestionSource] = {
    "2024": QuestionSource(dataset="HuggingFaceH4/aime_2024", split="train"),
    "2025": QuestionSource(dataset="math-ai/aime25", split="test"),
}


class Options(StageConfig):
    years: tuple[Year, ...] = Field(default=("2024", "2025"), min_length=1)
    sources: dict[Year, QuestionSource] = Field(default_factory=lambda: dict(SOURCES))
    """Where each year's problems are; a supplied file has columns ``problem`` and ``answer``, and
    ``id`` if it likes."""


def driver(options: Options) -> DriverProcess:
    return questions_driver("aime", all_questions(options))


def prompts(options: Options) -> list[str]:
    return [question.prompt.removeprefix(TASK) for question in all_questions(options)]


def all_questions(options: Options) -> list[Question]:
    return [question for year in options.years for question in questions(year, options)]


def questions(year: Year, options: Options) -> list[Question]:
    """The problems of a year. Raises SuiteError for rows without problem or answer, and for answers
    that are no integers of AIME."""
    source = options.sources.get(year)
    if source is None:
        raise SuiteError(f"options.sources of suite aime has nothing for {year}")
    problems: list[Question] = []
    for at, row in enumerate(read_rows(source)):
        gold = field(row, ("answer", "expected_answer"))
        if not gold.isdecimal() or not 0 <= int(gold) <= 999:
            raise SuiteError(
                f"AIME {year}, problem {at}: the answer {gold!r} is no integer of AIME"
            )
        prompt = TASK + field(row, ("problem", "question"))
        number = str(row.get("id") or row.get("ID") or at + 1)
        problems.append(
            Question(
                id=f"{year}-{number}", category=f"aime{year}", prompt=prompt, gold=str(int(gold)),
                kind="math",
            )
        )  # fmt: skip
    return problems


SUITE = Suite(name="aime", score="accuracy", driver=driver, checker="math_verify", prompts=prompts)
