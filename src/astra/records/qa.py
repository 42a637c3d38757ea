"""Decomposed questions (stages ``qa`` and ``qa_valid``; ASTRA section 4.1)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

from astra.records.base import Frozen, Record, Sparse
from astra.records.score import Score
from astra.records.state import FieldClass, Write


class AnswerType(StrEnum):
    NUMBER = "number"
    STRING = "string"
    BOOLEAN = "boolean"
    DATE = "date"
    ENUM = "enum"
    LIST = "list"
    RECORD = "record"


class Answer(Frozen):
    """A typed answer. ``value`` is JSON; a DATE is ISO 8601 text."""

    type: AnswerType
    value: Any
    unit: str = ""
    tolerance: float = 0.0
    """The largest accepted absolute difference, for a number."""
    ordered: bool = True
    """Whether a list's items must come in this order (answers to several questions do)."""
    domain_size: int | None = None
    """How many values were possible, where known. Below 20 an equal answer may be chance."""


class Scenario(StrEnum):
    SINGLE_HOP = "single_hop"
    PARALLEL_SINGLE_HOP = "parallel_single_hop"
    MULTI_HOP = "multi_hop"
    PARALLEL_MULTI_HOP = "parallel_multi_hop"


class QuestionKind(StrEnum):
    READ_ONLY = "read_only"
    WRITE = "write"
    MIXED = "mixed"
    MISSING_TOOL = "missing_tool"
    MISSING_PARAMETER = "missing_parameter"
    INFEASIBLE = "infeasible"
    ALREADY_SATISFIED = "already_satisfied"
    FORBIDDEN = "forbidden"  # what is wanted breaks a rule that no tool enforces; worlds alone
    CODE = "code"  # one stateful `python` tool; only the final answer is paid


class Split(StrEnum):
    """Which data an instance's entities and composition belong to; the three never meet."""

    TRAIN = "train"
    DEV = "dev"
    HELDOUT = "heldout"


class Table(Sparse):
    """Background knowledge: ``rows`` hold one JSON scalar per column."""

    sparse: ClassVar[tuple[str, ...]] = ("fields",)
    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    fields: dict[str, FieldClass] = {}
    """The columns whose end state is not compared exactly, in a table that is written."""


class Operation(Frozen):
    """How a sub-question's answer follows from knowledge, where its source states that.

    ``op`` is one of qa/knowledge/operations.py. ``arguments`` maps a parameter to a literal, or to
    ``{"from": id}`` for the answer of another sub-question.
    """

    op: str
    relation: str
    """What is asked of what, for example ``listing.price``; compositions are made of these."""
    table: str
    arguments: dict[str, Any]
    select: str = ""


class Bar(StrEnum):
    """Why a sub-question is not carried out, in a question that cannot or need not be."""

    NO_CALL = "no_call"  # its tool is offered, but calling it would be wrong or is impossible
    NO_TOOL = "no_tool"  # no tool for it is offered


class SubQuestion(Sparse):
    """One step of a decomposed question, with its answer."""

    sparse: ClassVar[tuple[str, ...]] = ("writes", "bar")
    id: int
    hop_level: int
    """1 for what depends on nothing, else one more than its deepest dependency."""
    question: str
    answer: Answer
    dependencies: tuple[int, ...] = ()
    operation: Operation | None = None
    tool_necessity: bool | None = None
    """The verdict of stage qa_valid, None before it: the operation's, else a judge's."""
    writes: tuple[Write, ...] = ()
    """What answering it changes in the tables: all of this, and nothing else."""
    bar: Bar | None = None
    """Barred steps count for no reward: their ``tool_necessity`` is False."""


class QAInstance(Record):
    """A question with its decomposition and the knowledge that answers it, or a goal in a world."""

    identity: ClassVar[tuple[str, ...]] = (
        "main_question",
        "final_answer",
        "sub_questions",
        "split",
        "world_id",
        "goal",
    )
    sparse: ClassVar[tuple[str, ...]] = ("world_id", "goal")
    split: Split
    domain: str
    language: str
    source: str
    """Knowledge source, for example ``world:real_estate`` or ``pypi:airportsdata==...``."""
    kind: QuestionKind
    scenario: Scenario
    main_question: str
    final_answer: Answer
    sub_questions: tuple[SubQuestion, ...]
    knowledge: tuple[Table, ...] = ()
    knowledge_text: str = ""
    entities: tuple[str, ...]
    """Every entity name in question, knowledge or answers; splits share none."""
    composition: str
    """Canonical shape of the question: operations and relations without entities."""
    scores: dict[str, Score] = {}
    prompt_hash: str = ""
    """Hashes of the prompt templates whose answers it holds, joined by ``+``."""
    world_id: str = ""
    """The persistent world that it is about; empty for questions."""
    goal: str = ""
    """What is wanted there, a ``WorldGoal`` as JSON; empty for questions."""

    @property
    def planned(self) -> bool:
        """Whether it was planned from tables; a teacher made the others freely."""
        return ":free:" not in self.composition
