"""Replies that teacher and judges are asked for: the response models of this domain's asks.

A judge's reason stands before its verdict, as models write fields in the order of the schema.
"""

from __future__ import annotations

from pydantic import field_validator

from astra.records.base import Frozen
from astra.records.qa import Answer, Operation, Scenario, Table


class StepWording(Frozen):
    """The words of one planned step, by its id."""

    id: int
    question: str


class Wording(Frozen):
    """Reply to ``qa/decompose`` and ``qa/outline``: the words of a planned question.

    All else of the question (operations, dependencies, answers) is the plan's.
    """

    main_question: str
    sub_questions: tuple[StepWording, ...]


class SynthesisStep(Frozen):
    """A sub-question of a free question, before the rules have passed it."""

    id: int
    hop_level: int
    question: str
    answer: Answer
    dependencies: tuple[int, ...] = ()
    relation: str
    """What is asked of what, for example ``boat.captain``."""
    operation: Operation | None = None


class Synthesis(Frozen):
    """Reply to ``qa/synthesise``: a question made or decomposed freely."""

    acts: bool
    """Whether the main question asks for an action, which some step makes."""
    scenario: Scenario
    main_question: str
    final_answer: Answer
    sub_questions: tuple[SynthesisStep, ...]
    entities: tuple[str, ...]
    """Every name of a person or thing in questions, answers and tables."""
    knowledge: tuple[Table, ...] = ()
    """The records that answer the steps, where each step states its operation on them."""

    @field_validator("knowledge")
    @classmethod
    def _well_formed(cls, tables: tuple[Table, ...]) -> tuple[Table, ...]:
        names = [table.name for table in tables]
        if len(set(names)) < len(names):
            raise ValueError(f"two tables have one name: {names}")
        for table in tables:
            _check_table(table)
        return tables


def _check_table(table: Table) -> None:
    """Raise ValueError where a table is not as wide as its columns, or holds more than scalars."""
    if not table.columns or len(set(table.columns)) < len(table.columns):
        raise ValueError(f"table {table.name}: columns {list(table.columns)} are none or repeat")
    for row in table.rows:
        if len(row) != len(table.columns):
            raise ValueError(f"table {table.name}: row {list(row)} has not one cell per column")
        if any(isinstance(cell, list | dict) for cell in row):
            raise ValueError(f"table {table.name}: row {list(row)} holds a list or an object")
    if strange := sorted(set(table.fields) - set(table.columns)):
        raise ValueError(f"table {table.name}: fields {strange} are no columns")


class Necessity(Frozen):
    """The judge's verdict on whether one sub-question needs a tool."""

    id: int
    reason: str
    needs_tool: bool


class NecessityReport(Frozen):
    """Reply to ``qa/necessity``: one verdict per sub-question."""

    verdicts: tuple[Necessity, ...]


class StepVerdict(Frozen):
    """``ok`` is the verifier's 0/1 judgement of one sub-question."""

    id: int
    reason: str
    ok: bool


class StepReport(Frozen):
    """Reply to ``qa/dependency``, ``qa/atomicity`` and ``qa/sequential``."""

    verdicts: tuple[StepVerdict, ...]


class CompletenessReport(Frozen):
    """Reply to ``qa/completeness``: one judgement of the whole instance."""

    missing: tuple[str, ...]
    """What the main question asks for and the sub-questions do not deliver."""
    complete: bool
