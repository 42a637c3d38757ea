"""The rules that every written task must pass, whoever wrote it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from astra.records.graph import ArgumentOrigin, ArgumentSource, ChainStep
from astra.records.tool import Tool
from astra.tasking.stated import GivenValue, Standing, given_values
from astra.text.language import UNKNOWN, detect_language
from astra.text.paths import NoSuchPath, at_path
from astra.text.schemas import parameter_violation
from astra.text.words import says, stands_in, words


class TaskProblem(ValueError):
    """A written task breaks a rule; ``reason`` is a short code."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def spoken(value: Any) -> str:
    """A value as a question states it; items of lists and objects one after the other."""
    if isinstance(value, list):
        return ", ".join(spoken(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {spoken(item)}" for name, item in value.items())
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def task_literals(plan: Sequence[ChainStep]) -> list[str]:
    """What the user has to say, in plan order without repeats: words for a value, or the value.

    A list or an object gives every text and number in it; a yes or no inside can be put in any
    words, so it is not asked for.
    """
    literals: dict[str, None] = {}
    for step in plan:
        for source in step.arguments.values():
            if source.origin is ArgumentOrigin.TASK and source.value is not None:
                said = [source.said] if source.said else leaves(source.value)
                literals.update(dict.fromkeys(said))
    return list(literals)


def said_in(question: str, plan: Sequence[ChainStep]) -> list[str]:
    """Those of a plan's ``task_literals`` that the question says.

    A yes, a choice or a number in words, which the judge let pass, is none of them.
    """
    return [text for text in task_literals(plan) if says(text, question)]


def leaves(value: Any) -> list[str]:
    """The texts and numbers in a value as spoken; a bare value is its own leaf."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        parts = (part for part in inner if part is not None and not isinstance(part, bool))
        return [leaf for part in parts for leaf in leaves(part)]
    return [spoken(value)]


def leaked_names(question: str, tools: Sequence[Tool]) -> list[str]:
    """Tool names that stand verbatim in the question.

    Plain words (``calculate``, ``Search``, ``查询``) do not count: a request may begin with one.
    """
    named = [tool.name for tool in tools if not _is_plain_word(tool.name)]
    return [name for name in named if stands_in(name, question)]


def _is_plain_word(name: str) -> bool:
    return name.isalpha() and name[1:] == name[1:].lower()


def check_question(
    question: str, plan: Sequence[ChainStep], tools: Sequence[Tool], language: str, max_words: int
) -> None:
    """Raises TaskProblem unless the question says every value, names no tool, and fits.

    What a rule cannot look for (``Standing.OPEN``), and whether a value follows from the user's
    words for it, is left to the judge.
    """
    length = len(words(question))
    if not question.strip() or length < 3:
        raise TaskProblem("question_too_short", question)
    if length > max_words:
        raise TaskProblem("question_too_long", f"{length} words")
    given = given_values(question, plan, {tool.name: tool for tool in tools})
    absent = [one for one in given if one.standing is Standing.ABSENT]
    if absent:
        raise TaskProblem("value_not_stated", "; ".join(map(_not_stated, absent)))
    leaked = leaked_names(question, tools)
    if leaked:
        raise TaskProblem("tool_named", f"{leaked} in {question!r}")
    check_language(question, language)


def _not_stated(given: GivenValue) -> str:
    """What is wrong with an absent value, for whoever writes the task anew."""
    value, said = given.source.value, given.source.said
    if said:
        return f"{given.place}: `said` {said!r} does not stand in the request"
    return f"{given.place}: {value!r} does not stand in the request and has no `said`"


def check_language(question: str, language: str) -> None:
    """Raises TaskProblem if the question is clearly in another language."""
    written = detect_language(question)
    if UNKNOWN not in (written, language) and written != language:
        raise TaskProblem("language_changed", f"{language} became {written}")


def check_plan(plan: Sequence[ChainStep], tools: Mapping[str, Tool]) -> None:
    """Raises TaskProblem unless tools exist, references hold and values conform."""
    if not plan:
        raise TaskProblem("plan_empty", "no steps")
    for index, step in enumerate(plan):
        tool = tools.get(step.tool)
        if tool is None:
            raise TaskProblem("plan_unknown_tool", step.tool)
        properties = tool.parameters.get("properties", {})
        required = set(tool.parameters.get("required", ()))
        if absent := required - set(step.arguments):
            raise TaskProblem("plan_argument_missing", f"{step.tool} {sorted(absent)}")
        for name, source in step.arguments.items():
            place = f"{index}.{name}"
            if name not in properties:
                raise TaskProblem("plan_unknown_argument", f"{place} of {step.tool}")
            if source.origin is ArgumentOrigin.OUTPUT:
                _check_reference(place, source, plan[:index], tools)
                continue
            if source.origin is ArgumentOrigin.CHOSEN and name not in required:
                detail = f"{place} of {step.tool} is optional: leave it out if nobody says it"
                raise TaskProblem("chosen_not_required", detail)
            if problem := parameter_violation(source.value, tool.parameters, name):
                raise TaskProblem("value_violates_schema", f"{place}: {problem}")


def _check_reference(
    place: str, source: ArgumentSource, earlier: Sequence[ChainStep], tools: Mapping[str, Tool]
) -> None:
    """Raises TaskProblem unless ``source`` points to what an earlier step may return."""
    if source.step is None or not 0 <= source.step < len(earlier):
        raise TaskProblem("plan_bad_reference", f"{place}: {source.step} is no earlier step")
    tool = tools[earlier[source.step].tool]
    if tool.result_schema is None:
        return
    try:
        at_path(tool.result_schema, source.path)
    except NoSuchPath as problem:
        detail = f"{place}: a result of {tool.name} has no {list(source.path)}: {problem}"
        raise TaskProblem("plan_bad_reference", detail) from None
