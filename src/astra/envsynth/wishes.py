"""What is wished of some tools so that choosing and calling them takes thought: drawn per tool."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

from astra.envsynth.envs_config import EnvsConfig
from astra.envsynth.static import Problem
from astra.envsynth.worlds import is_stateful
from astra.qa.knowledge.references import EvaluationError, is_reference, referred, resolve
from astra.records.base import content_id
from astra.records.environment import DEEP
from astra.records.qa import Operation, QAInstance, SubQuestion
from astra.records.tool import Tool
from astra.text.forms import Form, written
from astra.text.likeness import shared_words
from astra.text.units import is_money
from astra.text.words import has_cjk

_DRAWS = 16**8


@dataclass(frozen=True)
class Wishes:
    """What the document of one tool should be like, besides what all documents are."""

    unlike_name: bool = False
    """Whether its name should share no content word with the question."""
    other_form: bool = False
    """Whether it should want a value in another form than the question has it."""


NO_WISHES = Wishes()


def wishes_of(instance: QAInstance, question: SubQuestion, config: EnvsConfig) -> Wishes:
    """The wishes that are drawn for a sub-question's tool.

    Sub-questions of an instance that ask for the same draw the same, so that one tool can serve
    them. Names say nothing to questions of another script, and a look-up keeps the names that make
    it one: alone they would make no arena hard. What a tool does to shared tables is
    stated in the tables' own forms, so stateful tools keep those. Another form is wished for only
    where some value has one.
    """
    return Wishes(
        unlike_name=not has_cjk(question.question)
        and not is_lookup(instance)
        and _drawn("unlike_name", instance, question) < config.unlike_names,
        other_form=not is_stateful(instance, question)
        and all(
            _has_other_form(instance, other)
            for other in instance.sub_questions
            if _asked(other) == _asked(question)
        )
        and _drawn("other_form", instance, question) < config.formats,
    )


def _has_other_form(instance: QAInstance, question: SubQuestion) -> bool:
    """Whether an argument is a date, a name of several words or an amount of money; where no
    operation states arguments, it may be.
    """
    if question.operation is None:
        return True
    answers = {other.id: other.answer for other in instance.sub_questions}
    values = {number: answer.value for number, answer in answers.items()}
    for name, given in question.operation.arguments.items():
        try:
            value = resolve(given, values)
        except EvaluationError:
            continue
        if isinstance(value, str) and _is_reformed(value):
            return True
        units = [answers[number].unit for number in referred(given)] if is_reference(given) else []
        money = name == "amount" or any(is_money(unit) for unit in units)
        if money and written(value, Form.HUNDREDTHS) is not None:
            return True
    return False


def _is_reformed(value: str) -> bool:
    """Whether text is a date or a name of several words: plain words in lower case are no name."""
    return any(
        written(value, form) not in (None, value)
        for form in (Form.DAY_FIRST, Form.LAST_FIRST)
        if value != value.lower() or form is Form.DAY_FIRST
    )


def is_lookup(instance: QAInstance) -> bool:
    """Whether operations show that a question uses its answers whole, not four levels deep, and
    needs no two tools that differ by one parameter."""
    operations = [question.operation for question in instance.sub_questions]
    known = [operation for operation in operations if operation is not None]
    if len(known) < len(operations):
        return False
    return (
        not any(operation.op == "page" or _picks(operation) for operation in known)
        and all(question.hop_level < DEEP for question in instance.sub_questions)
        and not any(_are_twins(one, other) for one, other in permutations(known, 2))
    )


def _are_twins(few: Operation, many: Operation) -> bool:
    """Whether the second operation is the first with one parameter more."""
    more = many.arguments.keys() - few.arguments.keys()
    same = (few.op, few.table, few.select) == (many.op, many.table, many.select)
    return same and few.arguments.keys() < many.arguments.keys() and len(more) == 1


def _picks(operation: Operation) -> bool:
    given = operation.arguments.values()
    return any(is_reference(value) and "pick" in value for value in given)


def name_problem(wishes: Wishes, tool: Tool, question: str) -> Problem | None:
    """Why the tool's name is not the one that was wished for."""
    shared = shared_words(tool.name, question) if wishes.unlike_name else []
    if not shared:
        return None
    return "name_like_question", f"{tool.name} repeats {', '.join(shared)}: use other words"


def _drawn(wish: str, instance: QAInstance, question: SubQuestion) -> float:
    """A number in [0, 1) that the wish, the instance and what is asked decide."""
    return int(content_id([wish, instance.id, _asked(question)])[:8], 16) / _DRAWS


def _asked(question: SubQuestion) -> list[str] | int:
    """What sub-questions that one tool can serve have in common."""
    operation = question.operation
    return [operation.op, operation.relation] if operation else question.id
