"""The rules that every written task must pass, whoever wrote it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator

from astra.records.base import canonical_json
from astra.records.graph import ArgumentOrigin, ChainStep
from astra.records.tool import Tool
from astra.text.language import UNKNOWN, detect_language
from astra.text.words import stands_in, words

MIN_KEPT_WORDS = 0.6
"""The least share of the original's words that an augmented question keeps, as a measure of its
intent."""


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
    """The values that the user has to state, as stated, in plan order without repeats.

    A list or an object gives every text and number in it; a yes or no inside can be put in any
    words, so it is not asked for.
    """
    literals: dict[str, None] = {}
    for step in plan:
        for source in step.arguments.values():
            if source.origin is ArgumentOrigin.TASK and source.value is not None:
                literals.update(dict.fromkeys(leaves(source.value)))
    return list(literals)


def leaves(value: Any) -> list[str]:
    """The texts and numbers in a value as spoken; a bare value is its own leaf."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        parts = (part for part in inner if part is not None and not isinstance(part, bool))
        return [leaf for part in parts for leaf in leaves(part)]
    return [spoken(value)]


def leaked_names(question: str, tools: Sequence[Tool]) -> list[str]:
    """Tool names that stand verbatim in the question; plain words (``calculate``) do not count."""
    named = [tool.name for tool in tools if not tool.name.isalpha() or not tool.name.islower()]
    return [name for name in named if stands_in(name, question)]


def check_question(
    question: str, plan: Sequence[ChainStep], tools: Sequence[Tool], language: str, max_words: int
) -> None:
    """Raises TaskProblem unless the question states every value, names no tool, and fits."""
    length = len(words(question))
    if not question.strip() or length < 3:
        raise TaskProblem("question_too_short", question)
    if length > max_words:
        raise TaskProblem("question_too_long", f"{length} words")
    missing = [literal for literal in task_literals(plan) if not stands_in(literal, question)]
    if missing:
        raise TaskProblem("value_not_stated", f"{missing} in {question!r}")
    leaked = leaked_names(question, tools)
    if leaked:
        raise TaskProblem("tool_named", f"{leaked} in {question!r}")
    check_language(question, language)


def check_language(question: str, language: str) -> None:
    """Raises TaskProblem if the question is clearly in another language."""
    written = detect_language(question)
    if UNKNOWN not in (written, language) and written != language:
        raise TaskProblem("language_changed", f"{language} became {written}")


def check_plan(plan: Sequence[ChainStep], tools: Mapping[str, Tool]) -> None:
    """Raises TaskProblem unless tools exist, references point back and values conform."""
    if not plan:
        raise TaskProblem("plan_empty", "no steps")
    for index, step in enumerate(plan):
        tool = tools.get(step.tool)
        if tool is None:
            raise TaskProblem("plan_unknown_tool", step.tool)
        properties = tool.parameters.get("properties", {})
        absent = set(tool.parameters.get("required", ())) - set(step.arguments)
        if absent:
            raise TaskProblem("plan_argument_missing", f"{step.tool} {sorted(absent)}")
        for name, source in step.arguments.items():
            if name not in properties:
                raise TaskProblem("plan_unknown_argument", f"{step.tool}.{name}")
            if source.origin is ArgumentOrigin.OUTPUT:
                if source.step is None or not 0 <= source.step < index:
                    raise TaskProblem("plan_bad_reference", f"{step.tool}.{name}")
            elif not _validator(canonical_json(_with_definitions(tool, name))).is_valid(
                source.value
            ):
                raise TaskProblem("value_violates_schema", f"{step.tool}.{name}={source.value!r}")


def _with_definitions(tool: Tool, name: str) -> Any:
    """The schema of one parameter, with the definitions that its references point to."""
    schema = tool.parameters["properties"][name]
    shared = {k: tool.parameters[k] for k in ("$defs", "definitions") if k in tool.parameters}
    return {**schema, **shared} if isinstance(schema, dict) else schema


@lru_cache(maxsize=4096)
def _validator(schema: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads(schema))


def check_preserved(original: str, changed: str, literals: Sequence[str], language: str) -> None:
    """Raises TaskProblem unless values, language and intent of the original are kept."""
    if changed.strip().lower() == original.strip().lower():
        raise TaskProblem("augmentation_unchanged", changed)
    lost = [literal for literal in literals if not stands_in(literal, changed)]
    if lost:
        raise TaskProblem("augmentation_lost_value", f"{lost} in {changed!r}")
    check_language(changed, language)
    before = {word.lower() for word in words(original)}
    after = {word.lower() for word in words(changed)}
    if before and len(before & after) / len(before) < MIN_KEPT_WORDS:
        raise TaskProblem("augmentation_lost_intent", changed)
