"""The prompts that have a plan put into words, and those that show a judge a question."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from astra.prompting import render
from astra.qa.hearing import judge_variables
from astra.qa.qa import QuestionWriter
from astra.qa.questions.plan import QuestionPlan
from astra.records.qa import Bar, QuestionKind

CANDIDATES = {
    "en": "except where the answer is\n  one of the candidates it names",
    "zh": "除非答案是它所列候选者之一",
}


KINDS = [k for k in QuestionKind if k not in (QuestionKind.CODE, QuestionKind.FORBIDDEN)]
"""What is planned over tables."""


@pytest.fixture(scope="module")
def prompts(qa_config: Any) -> list[tuple[QuestionPlan, str, Mapping[str, Any]]]:
    """Plans of every kind and language with their prompts and variables."""
    kinds = {kind.value: 1 / 7 for kind in KINDS}
    config = qa_config(
        languages={"en": 0.5, "zh": 0.5},
        kinds=kinds,
        extended=True,
        sources={"hotels": 1, "library": 1},
        instances={"train": 84},
        hops={1: 1, 2: 1, 3: 1},
    )
    return list(_prompts(config))


def _prompts(config: Any) -> Iterator[tuple[QuestionPlan, str, Mapping[str, Any]]]:
    writer = QuestionWriter(config)
    for wanted in writer.wanted():
        if isinstance(wanted, tuple):
            stratum, plan = wanted
            if isinstance(plan, QuestionPlan):
                ask = writer.ask(stratum, plan)
                yield plan, render(ask.template, ask.variables), ask.variables


def test_every_prompt_shows_what_is_to_be_worded(
    prompts: list[tuple[QuestionPlan, str, Mapping[str, Any]]],
) -> None:
    assert {plan.kind for plan, _, _ in prompts} >= set(KINDS)
    for plan, text, variables in prompts:
        assert variables["closing"] in text
        assert CANDIDATES[variables["language"]] in text
        assert len(re.findall(r"^\d+\. ", text, re.MULTILINE)) == len(plan.operations)
        for table in plan.tables:
            assert str(list(table.columns)) not in text, "words need no tables"


def test_the_outcomes_are_quoted_and_a_mixed_kind_is_explained(
    prompts: list[tuple[QuestionPlan, str, Mapping[str, Any]]],
) -> None:
    for plan, text, variables in prompts:
        assert variables["closing"].count('"') + variables["closing"].count("“") * 2 >= 4
        english = variables["language"] == "en"
        said = "besides the action, or as the action leaves it" if english else "或动作之后的值"
        assert (said in text) is (plan.kind is QuestionKind.MIXED)


def test_a_value_that_the_user_forgets_is_marked(
    prompts: list[tuple[QuestionPlan, str, Mapping[str, Any]]],
) -> None:
    marks = {"en": "name its value in no question", "zh": "任何问题里都不要出现它的值"}
    hidden = 0
    for plan, text, variables in prompts:
        barred = any(node.bar is Bar.NO_CALL for node in plan.composition.nodes)
        untold = plan.kind is QuestionKind.MISSING_PARAMETER and barred
        assert (marks[variables["language"]] in text) is untold
        hidden += untold
    assert hidden


def test_a_comparison_is_told_its_wording(qa_config: Any) -> None:
    config = qa_config(
        instances={"train": 60}, scenarios={"parallel_single_hop": 1.0}, hops={1: 1, 2: 1}
    )
    compared = [
        (plan, text)
        for plan, text, _ in _prompts(config)
        if plan.operations[-1].op in ("greater", "less")
    ]
    assert compared
    for plan, text in compared:
        word = "higher" if plan.operations[-1].op == "greater" else "lower"
        assert re.search(rf'means "which of \[.*{re.escape(plan.names[0])}.*{word} value"', text)


@pytest.mark.parametrize("name", ["necessity", "dependency", "atomicity", "sequential"])
def test_a_judge_is_told_which_steps_to_judge(name: str, documents: Any, build: Any) -> None:
    text = render(f"qa/{name}", judge_variables(build(documents["comparison"]()), [3, 1]))
    assert "for each of the steps [1, 3]" in text
