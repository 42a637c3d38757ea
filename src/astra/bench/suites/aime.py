"""AIME 2024 and 2025: 30 problems each, integers from 0 to 999, checked by math-verify.

The paper takes 32 samples at temperature 0.6 and top-p 0.95 at each of two settings, top-k 20 and
none: two entries of ``bench.suites`` with ``tries: 32`` and their own ``decoding.top_k``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from astra.bench.harness.protocol import DriverProcess, SuiteConfig, SuiteError
from astra.bench.harness.questions import (
    Question,
    QuestionSource,
    field,
    questions_driver,
    read_rows,
)
from astra.settings import StageConfig, validate

Year = Literal["2024", "2025"]
TASK = (
    "Solve the following problem. Reason step by step and write the final answer, an integer from "
    "0 to 999, as \\boxed{ANSWER} at the end.\n\n"
)
SOURCES: dict[Year, QuestionSource] = {
    "2024": QuestionSource(dataset="HuggingFaceH4/aime_2024", split="train"),
    "2025": QuestionSource(dataset="math-ai/aime25", split="test"),
}


class AimeOptions(StageConfig):
    years: tuple[Year, ...] = Field(default=("2024", "2025"), min_length=1)
    sources: dict[Year, QuestionSource] = Field(default_factory=lambda: dict(SOURCES))
    """By year; a supplied file has columns ``problem`` and ``answer``, and ``id`` if it likes."""


@dataclass(frozen=True)
class Aime:
    name: str = "aime"
    score: str = "accuracy"
    roles: tuple[str, ...] = ()

    def complete(self, options: dict[str, Any]) -> dict[str, Any]:
        return validate("bench.suites.aime", options, AimeOptions).model_dump(mode="json")

    def driver(self, config: SuiteConfig) -> DriverProcess:
        return questions_driver(self.name, _all(config.options))

    def prompts(self, options: Mapping[str, Any]) -> list[str]:
        return [question.prompt.removeprefix(TASK) for question in _all(options)]


def _all(given: Mapping[str, Any]) -> list[Question]:
    options = AimeOptions.model_validate(given)
    return [one for year in options.years for one in questions(year, options)]


def questions(year: Year, options: AimeOptions) -> list[Question]:
    """Raises SuiteError for rows without problem or answer, and answers that are no integers."""
    source = options.sources.get(year)
    if source is None:
        raise SuiteError(f"options.sources of suite aime has nothing for {year}")
    made: list[Question] = []
    for at, row in enumerate(read_rows(source)):
        gold = field(row, ("answer", "expected_answer"))
        if not gold.isdecimal() or not 0 <= int(gold) <= 999:
            raise SuiteError(
                f"AIME {year}, problem {at}: the answer {gold!r} is no integer of AIME"
            )
        prompt = TASK + field(row, ("problem", "question"))
        number = str(row.get("id") or row.get("ID") or at + 1)
        made.append(
            Question(
                id=f"{year}-{number}", category=f"aime{year}", prompt=prompt, gold=str(int(gold)),
                kind="math",
            )
        )  # fmt: skip
    return made


SUITE = Aime()
