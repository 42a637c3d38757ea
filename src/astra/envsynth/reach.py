"""Whether an agent can know a gold call: each value must stand in what it was told by then."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime
from typing import Any

from astra.arena.answers import same_value
from astra.envsynth.known import leaves_of
from astra.envsynth.static import Problem
from astra.envsynth.truth import forms_between
from astra.qa.knowledge.operations import ARITHMETIC
from astra.qa.knowledge.references import EvaluationError, resolve
from astra.records.qa import QAInstance, SubQuestion
from astra.records.tool import Tool
from astra.text.forms import clock, clocks_in, readings
from astra.text.schemas import descriptions_of, schema_at
from astra.text.words import plain, says, stands_in

_WRITTEN_DAYS = (
    "%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d %B %Y", "%B %d, %Y", "%B %d %Y", "%d %b %Y",
    "%b %d, %Y",
)  # fmt: skip
_OWN_FORM = frozenset({"enum", "const", "pattern", "format"})
"""Keywords by which a schema says in which form it wants a value."""
_STARTS_AS_DATE = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[T ]|$)")
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip


def reach_problem(
    tool: Tool,
    arguments: Mapping[str, Any],
    told: Sequence[Any],
    right: Collection[str] = (),
) -> Problem | None:
    """Why an agent cannot know the gold arguments: text or a date that stands nowhere in ``told``.

    A value may be told in another form than the tool wants it (``text/forms.py``); of a date, year,
    month and day must be told. Numbers may be written in too many ways to be judged. A value may
    stand in the document, too: in an enumeration, or as words of a description. ``right``: the
    arguments that have passed ``value_problem``, so that the document has to tell their value.
    """
    described = [tool.description, *descriptions_of(tool.parameters)]
    known = [str(value) for _, value in leaves_of(list(told)) if value is not None]
    for path, value in leaves_of(arguments):
        if not isinstance(value, str) or schema_at(tool.parameters, path).keys() & {
            "enum",
            "const",
        }:
            continue
        if any(says(value, text) for text in described):
            continue
        if not any(_is_told(reading, known) for reading in readings(value)):
            name = ".".join(str(step) for step in path)
            untold = f"{name}: {value!r} is in no question or earlier answer"
            if name in right and not schema_at(tool.parameters, path).keys() & _OWN_FORM:
                mend = "make it part of what the tool is for, or list the whole column as an enum"
                return "untold_argument", f"{untold} that an agent sees: {mend}"
            return "unreachable_argument", untold
    return None


def value_problem(
    instance: QAInstance, question: SubQuestion, tool: Tool, arguments: Mapping[str, Any]
) -> Problem | None:
    """Why the gold arguments are not those of the operation: one that is named like the operation's
    has neither its value nor another form of it.

    A schema that states a form or values of its own may want it as no known form has it.
    """
    stated = question.operation.arguments if question.operation else {}
    answers = {other.id: other.answer.value for other in instance.sub_questions}
    for name, value in arguments.items():
        if name not in stated or schema_at(tool.parameters, [name]).keys() & _OWN_FORM:
            continue
        try:
            meant = resolve(stated[name], answers)
        except EvaluationError:
            continue
        if not _same(meant, value):
            return "other_value", f"{name}: {value!r} is not {meant!r}, which the question means"
    return _operand_problem(question, stated, answers, arguments)


def _operand_problem(
    question: SubQuestion,
    stated: Mapping[str, Any],
    answers: Mapping[int, Any],
    arguments: Mapping[str, Any],
) -> Problem | None:
    """Why a calculation is not given what it calculates with, under whatever names."""
    operation = question.operation
    if operation is None or operation.op not in ARITHMETIC:
        return None
    left = [value for _, value in leaves_of(arguments)]
    for name, given in stated.items():
        try:
            meant = resolve(given, answers)
        except EvaluationError:
            return None
        found = next((value for value in left if _same(meant, value)), None)
        if found is None:
            return "other_value", f"no argument is {meant!r}, which is {name} of the calculation"
        left.remove(found)
    return None


def _same(meant: Any, value: Any) -> bool:
    """Whether a value is the one that is meant, or a form of it."""
    if same_value(meant, value) or forms_between(meant, value):
        return True
    if isinstance(meant, str) and isinstance(value, str):
        days = {_day(meant), _day(value)}
        return len(days) == 1 and None not in days
    return not isinstance(meant, bool) and str(meant) == str(value)  # "3" for 3


def _is_told(value: Any, known: Sequence[str]) -> bool:
    if not isinstance(value, str):
        return False  # the readings of text are text
    if any(plain(value) in plain(text) for text in known):
        return True
    at, day = clock(value), _day(value)
    if at is not None:
        return any(at in clocks_in(text) for text in known)
    return day is not None and _is_told_day(day, known)


def _is_told_day(day: date, known: Sequence[str]) -> bool:
    """Whether the day is told: written in full, or its month and day in one text, and its year."""
    years = any(stands_in(str(day.year), text) or f"{day.year}年" in text for text in known)
    return any(_dates(text, day) for text in known) or (
        years and any(_month_and_day(plain(text), day) for text in known)
    )


def _dates(text: str, day: date) -> bool:
    """Whether the text writes the day with digits, year included."""
    forms = ("%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%Y/%m/%d", "%Y%m%d")
    loose = {day.strftime(form) for form in forms}
    loose |= {f"{day.day}/{day.month}/{day.year}", f"{day.month}/{day.day}/{day.year}"}
    loose |= {f"{day.day}.{day.month}.{day.year}", f"{day.year}年{day.month}月{day.day}日"}
    return any(stands_in(form, text) for form in loose)


def _month_and_day(text: str, day: date) -> bool:
    """Whether the text names the month, and the day beside it."""
    if f"{day.month}月{day.day}" in text:
        return True
    month = _MONTHS[day.month - 1]
    named = rf"(?:{month}|{month[:3]}\.?)"
    counted = rf"0?{day.day}(?:st|nd|rd|th)?"
    around = rf"\b(?:{named}\W+(?:the\W+)?{counted}|{counted}\W+(?:of\W+)?{named})(?!\w)"
    return re.search(around, text) is not None


def _day(value: str) -> date | None:
    """The day that a value writes in full; None where it writes none."""
    if match := _STARTS_AS_DATE.match(value):
        value = match[1]
    for form in _WRITTEN_DAYS:
        try:
            return datetime.strptime(value, form).date()
        except ValueError:
            continue
    return None
