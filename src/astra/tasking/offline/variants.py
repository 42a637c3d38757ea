"""The offline teacher and judge of variants: a rule for each ask."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from astra.llm.protocol import OfflineHandlers
from astra.tasking.asks import WrittenTask
from astra.tasking.checks import task_literals
from astra.tasking.offline.reading import (
    language_in,
    plan_in,
    planned,
    question_for,
    tools_in,
)
from astra.tasking.variant_asks import (
    COMPLICATE,
    DIVERSE,
    DROP_PARAMETER,
    PERSONA,
    REPLAN,
    SOLVABLE_ASK,
    PersonalRequest,
    Replanned,
    Rewritten,
    Solvability,
)
from astra.text.words import stands_in, words

_CONTEXTS = (
    "I am making a list for my team.",
    "This is for a short report.",
    "I have a meeting in ten minutes.",
    "My notes are not complete.",
    "A friend asked me about this.",
    "I want to check an old note.",
)
_DEMANDS = (
    "Do not guess the answer.",
    "I need the exact value, not a guess.",
    "If a lookup fails, try it again before you answer.",
    "Use the newest data and nothing from memory.",
    "A late answer is better than a wrong one.",
)
_CONTEXTS_ZH = ("我在准备一份报告。", "十分钟后我要开会。", "我的记录不完整。", "朋友问起这件事。")
_DEMANDS_ZH = ("请不要猜测答案。", "我需要准确的结果。", "如果查询失败，请再试一次。")
MIN_KEPT_WORDS = 0.6
"""The least share of an original's words in a variant in which a rule still sees its calls."""


def diverse(variables: Mapping[str, Any], rng: random.Random) -> WrittenTask:
    """A sentence of context before the question, with the same values."""
    contexts = _CONTEXTS_ZH if language_in(variables) == "zh" else _CONTEXTS
    question = _joined(variables, rng.choice(contexts), variables["question"])
    return WrittenTask(question=question, steps=planned(plan_in(variables["steps"])))


def complicate(variables: Mapping[str, Any], rng: random.Random) -> Rewritten:
    """The question with a demand after it."""
    demands = _DEMANDS_ZH if language_in(variables) == "zh" else _DEMANDS
    return Rewritten(question=_joined(variables, variables["question"], rng.choice(demands)))


def persona(variables: Mapping[str, Any], rng: random.Random) -> PersonalRequest:
    """The first person's introduction before the question."""
    question = _joined(variables, variables["people"][0], variables["question"])
    return PersonalRequest(reason="by rule", person=1, question=question)


def _joined(variables: Mapping[str, Any], first: str, second: str) -> str:
    return f"{first}{'' if language_in(variables) == 'zh' else ' '}{second}"


def replan(variables: Mapping[str, Any], rng: random.Random) -> Replanned:
    """The plan of a question that still has the original's words and the values; else none."""
    plan = plan_in(variables["planned"])
    before, after = (
        {word.lower() for word in words(variables[name])} for name in ("original", "question")
    )
    literals = task_literals(plan)
    if any(not stands_in(literal, variables["question"]) for literal in literals):
        return Replanned(reason="a value is gone", steps=())
    if before and len(before & after) / len(before) < MIN_KEPT_WORDS:
        return Replanned(reason="the original's words are gone", steps=())
    return Replanned(reason="by rule", steps=planned(plan))


def drop_parameter(variables: Mapping[str, Any], rng: random.Random) -> Rewritten:
    """The question again, without one value."""
    omitted = (variables["step"], variables["parameter"])
    plan = plan_in(variables["steps"])
    return Rewritten(question=question_for(variables, plan, tools_in(variables), rng, omitted))


def solvable(variables: Mapping[str, Any], rng: random.Random) -> Solvability:
    """A rule knows of no second way to anything."""
    return Solvability(reason="by rule", solvable="no")


HANDLERS: OfflineHandlers = {
    DIVERSE: diverse,
    COMPLICATE: complicate,
    PERSONA: persona,
    REPLAN: replan,
    DROP_PARAMETER: drop_parameter,
    SOLVABLE_ASK: solvable,
}
