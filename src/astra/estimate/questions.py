"""Facts of tables ``qa`` and ``qa_valid``: their questions, and what they need."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from astra.estimate.asks import Amount
from astra.estimate.sampling import mean, sample, size
from astra.records.base import compact_json
from astra.records.qa import Bar, QAInstance, SubQuestion
from astra.records.state import WriteAction


@dataclass(frozen=True)
class QuestionFacts:
    """The questions of tables ``qa`` and ``qa_valid``."""

    rows: Amount
    steps: float
    """Sub-questions of a question."""
    tools: float
    """Those that are not known to do without a tool."""
    built_on: float
    """Those that others depend on."""
    linked: float
    """The share of questions in which a step depends on another."""
    crowded: float
    """The share of questions in which two steps or more need a tool."""
    writing: float
    """The share of questions that ask for an action."""
    stated_bytes: float
    """The question, its sub-questions and their answers."""
    table_bytes: float
    """One background table of a question."""
    operated: float
    """The share of questions whose every step states its operation."""
    planned: float
    """The share of questions planned from tables."""


def questions_of(table: Path) -> QuestionFacts:
    """Facts of table ``qa`` or ``qa_valid``."""
    rows, some = sample(table, QAInstance)
    needing = [sum(map(_needs_tool, one.sub_questions)) for one in some]
    return QuestionFacts(
        rows=rows,
        steps=mean(len(one.sub_questions) for one in some),
        tools=mean(needing),
        built_on=mean(len(_built_on(one)) for one in some),
        linked=mean(bool(_built_on(one)) for one in some),
        crowded=mean(number > 1 for number in needing),
        writing=mean(any(map(_acts, one.sub_questions)) for one in some),
        stated_bytes=mean(map(_stated_bytes, some)),
        table_bytes=mean(
            size(table.model_dump(mode="json")) for one in some for table in one.knowledge
        ),
        operated=mean(all(step.operation for step in one.sub_questions) for one in some),
        planned=mean(one.planned for one in some),
    )


def _needs_tool(step: SubQuestion) -> bool:
    return step.tool_necessity is not False or step.bar == Bar.NO_CALL


def _built_on(one: QAInstance) -> set[int]:
    return {number for step in one.sub_questions for number in step.dependencies}


def _acts(step: SubQuestion) -> bool:
    named = step.operation is not None and step.operation.op in set(WriteAction)
    return named or bool(step.writes)


def _stated_bytes(one: QAInstance) -> int:
    stated = [one.main_question, *(step.question for step in one.sub_questions)]
    answers = [compact_json(step.answer.value) for step in one.sub_questions]
    return sum(len(text.encode()) for text in [*stated, *answers])
