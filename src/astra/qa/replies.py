"""Replies that teacher and judges are asked for: the response models of this domain's asks.

A judge's reason stands before its verdict, as models write fields in the order of the schema.
"""

from __future__ import annotations

from astra.records.base import Frozen
from astra.records.qa import Answer, Operation, Scenario, SubQuestion, Table


class Decomposition(Frozen):
    """Reply to ``qa/decompose``: a main question and its DAG of sub-questions."""

    scenario: Scenario
    main_question: str
    final_answer: Answer
    sub_questions: tuple[SubQuestion, ...]


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

    scenario: Scenario
    main_question: str
    final_answer: Answer
    sub_questions: tuple[SynthesisStep, ...]
    entities: tuple[str, ...]
    """Every name of a person or thing in questions, answers and tables."""
    knowledge: tuple[Table, ...] = ()
    """The records that answer the steps, where each step states its operation on them."""


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
