"""Rules about the words of a question: it says what its steps need, and not what they find.

A literal argument counts as said if the main question mentions it (text/mentions.py). In a free
question so does what the step's own question says, if it is a constant (a plain word that is no
name, such as ``unpaid`` in "the unpaid ticket"), or if it is no name and the main question was
given and misspells it, since nobody may change that text. A name is spelt as there: agents copy
names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from astra.qa.config import Mode
from astra.qa.knowledge.operations import COMPARING
from astra.qa.knowledge.references import literals
from astra.qa.questions.outcomes import OUTCOMES
from astra.records.qa import AnswerType, Bar, QAInstance, QuestionKind, SubQuestion
from astra.text.language import detect_language
from astra.text.mentions import mentions, misspells
from astra.text.words import has_cjk

Problem = tuple[str, str]
"""Reason code and detail."""
CONSTANT_WORDS = 3
"""How many words a constant has at most."""
CONSTANT_CHARACTERS = 6
"""How many characters a Chinese one has at most."""
SHORTEST_REVEALED = 3
"""How many characters an answer has at least that a question could give away."""
_CODE = re.compile(r"[\d@_/:#]")
_ANY_LETTERS = re.compile(r"[^\W\d_]")


def wording(instance: QAInstance, mode: Mode | None) -> Iterator[Problem]:
    """Problems of the wording. ``mode`` is that of a free question, None for a planned one."""
    question = instance.main_question
    if not question.strip() or any(not step.question.strip() for step in instance.sub_questions):
        yield ("empty_question", "a question is blank")
    if (detect_language(question) == "zh") is not (instance.language == "zh"):
        yield ("wrong_language", f"the question is not in {instance.language}")
    for step in instance.sub_questions:
        if step.operation is None:
            continue
        given = literals(step.operation)
        if step.bar is Bar.NO_CALL and instance.kind is QuestionKind.MISSING_PARAMETER:
            if len(given) != 1 or mentions(question, given[0]):
                yield ("nothing_missing", f"{step.id} may lack one value, not {given}")
        elif missing := [value for value in given if not _said(value, step, instance, mode)]:
            yield ("not_in_question", f"{step.id} needs {missing[0]!r}, never mentioned")
    yield from _revealed(instance, mode)


def _said(value: Any, step: SubQuestion, instance: QAInstance, mode: Mode | None) -> bool:
    """Whether an agent that reads the question alone can know a literal of a step."""
    question = instance.main_question
    if mentions(question, value):
        return True
    if mode is None or not mentions(step.question, value):
        return False
    if _is_constant(value, instance):
        return True
    if mode is not Mode.QUESTION or value in instance.entities:
        return False
    cells = [cell for table in instance.knowledge for row in table.rows for cell in row]
    return misspells(question, value, map(str, cells))


def _is_constant(value: Any, instance: QAInstance) -> bool:
    """Whether a value is a plain word out of few: neither a name nor a code."""
    if not isinstance(value, str) or value in instance.entities or _CODE.search(value):
        return False
    if not _ANY_LETTERS.search(value):
        return False
    if has_cjk(value):
        return len(value) <= CONSTANT_CHARACTERS
    return value == value.lower() and len(value.split()) <= CONSTANT_WORDS


def _revealed(instance: QAInstance, mode: Mode | None) -> Iterator[Problem]:
    """A question does not contain its answer, except as one of several that it names."""
    final = instance.final_answer
    if instance.kind in OUTCOMES["en"] or not isinstance(final.value, str):
        return  # of the first sort, the question names every outcome
    # A user may name the states that a thing can be in; nobody may change what was given.
    names_states = mode is Mode.QUESTION and final.type is AnswerType.ENUM
    if len(final.value) < SHORTEST_REVEALED or names_states or _compares(instance):
        return
    if mentions(instance.main_question, final.value):
        yield ("answer_in_question", f"{final.value!r} is in the question")


def _compares(instance: QAInstance) -> bool:
    """Whether a last step chooses among candidates, which a question has to name."""
    used = {dependency for step in instance.sub_questions for dependency in step.dependencies}
    last = (step for step in instance.sub_questions if step.id not in used)
    return any(
        len(step.dependencies) > 1 if step.operation is None else step.operation.op in COMPARING
        for step in last
    )
