"""The offline teacher and judge of stage ``tasks``: a rule for each ask."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from astra.llm.protocol import OfflineHandlers, ProviderError
from astra.records.graph import ArgumentOrigin, ArgumentSource, ChainStep
from astra.records.tool import Tool
from astra.tasking.asks import (
    AUGMENT,
    CHAIN_TASK,
    DROP_PARAMETER,
    SCORE,
    SERVER_TASK,
    PlannedArgument,
    PlannedStep,
    Rewritten,
    TaskScores,
    WrittenTask,
)
from astra.tasking.checks import leaked_names, task_literals
from astra.tasking.offline import grammar, grammar_zh
from astra.tasking.offline.grammar import Omitted, PlanText
from astra.tasking.offline.grammar_zh import ChineseText
from astra.text.values import ENTITY, NoValue, draw_value
from astra.text.words import stands_in

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
_ARITHMETIC = re.compile(r"[\d\s+-]+")
LONG_QUESTION = 40
DEEP_NESTING = 4


def write_chain_task(variables: Mapping[str, Any], rng: random.Random) -> WrittenTask:
    """Values for what the user states, then a question by grammar."""
    tools = _tools(variables)
    plan = _bind(_plan(variables["steps"]), tools, rng)
    return WrittenTask(question=_question(variables, plan, tools, rng), steps=_planned(plan))


def write_server_task(variables: Mapping[str, Any], rng: random.Random) -> WrittenTask:
    """``number`` calls side by side: one tool on several subjects, or several on one subject."""
    tools = _tools(variables)
    number: int = variables["number"]
    first = rng.choice(sorted(tools))
    beside = [name for name in sorted(tools) if name != first and _same(tools[first], tools[name])]
    if len(beside) >= number - 1 > 0 and rng.random() < 0.5:
        chosen = [first, *rng.sample(beside, number - 1)]
    else:
        chosen = [first] * number
    unbound = [
        ChainStep(
            tool=name,
            arguments={
                parameter: ArgumentSource(origin=ArgumentOrigin.TASK)
                for parameter in tools[name].parameters.get("required", ())
            },
        )
        for name in chosen
    ]
    plan = _bind(unbound, tools, rng)
    if len({step.model_dump_json() for step in plan}) < len(plan):
        raise ProviderError(f"{first} cannot be asked about {number} different subjects")
    return WrittenTask(question=_question(variables, plan, tools, rng), steps=_planned(plan))


def drop_parameter(variables: Mapping[str, Any], rng: random.Random) -> Rewritten:
    """The question again, without one value."""
    omitted = (variables["step"], variables["parameter"])
    plan = _plan(variables["steps"])
    return Rewritten(question=_question(variables, plan, _tools(variables), rng, omitted))


def augment(variables: Mapping[str, Any], rng: random.Random) -> Rewritten:
    """A sentence of context, of demands, or of the person who asks."""
    question: str = variables["question"]
    chinese = _language(variables) == "zh"
    demands, contexts = (_DEMANDS_ZH, _CONTEXTS_ZH) if chinese else (_DEMANDS, _CONTEXTS)
    space = "" if chinese else " "
    if variables["mode"] == "complicate":
        return Rewritten(question=f"{question}{space}{rng.choice(demands)}")
    lead = variables["persona"] if variables["mode"] == "persona" else rng.choice(contexts)
    return Rewritten(question=f"{lead}{space}{question}")


def score(variables: Mapping[str, Any], rng: random.Random) -> TaskScores:
    """Labels by rule; what a rule cannot see (style) keeps the best label."""
    question: str = variables["question"]
    plan = _plan(variables["steps"])
    tools = _tools(variables)
    return TaskScores(
        reason="by rule",
        quality=_quality(question, plan, list(tools.values()), variables["kind"]),
        realism=_realism(question),
        necessity=_necessity(plan),
        difficulty=min(5, 1 + len(plan)),
        uniqueness=5 if len({step.tool for step in plan}) == len(plan) else 4,
    )


def _quality(question: str, plan: Sequence[ChainStep], tools: Sequence[Tool], kind: str) -> int:
    label = 5
    missing = [literal for literal in task_literals(plan) if not stands_in(literal, question)]
    label -= 3 if missing and kind != "missing_parameter" else 0
    label -= 2 if leaked_names(question, tools) else 0
    label -= 1 if not question.rstrip().endswith((".", "?", "!", "。", "？")) else 0
    label -= 2 if len(question.split()) > LONG_QUESTION else 0
    return max(label, 1)


def _realism(question: str) -> int:
    """People neither chain many genitives nor repeat themselves word by word."""
    words = re.findall(r"[a-z]+", question.lower())
    label = 5
    label -= 1 if words.count("of") >= DEEP_NESTING else 0
    label -= 2 if words.count("of") > DEEP_NESTING + 1 else 0
    label -= 1 if any(a == b for a, b in pairwise(words)) else 0
    longest = max((words.count(word) for word in words if len(word) > 3), default=0)
    label -= 2 if longest > 3 else 0
    return max(label, 1)


def _necessity(plan: Sequence[ChainStep]) -> int:
    """Adding or subtracting small integers needs no tool; everything else here does."""
    if not plan:
        return 1
    for step in plan:
        values = [source.value for source in step.arguments.values()]
        simple = len(values) == 1 and isinstance(values[0], str)
        if not (simple and _ARITHMETIC.fullmatch(values[0])):
            return 5
    return 2


def _language(variables: Mapping[str, Any]) -> str:
    """en or zh. Raises ProviderError for any other language."""
    language = variables["server"]["language"]
    if language not in ("en", "und", "zh"):
        raise ProviderError(f"the offline teacher writes English and Chinese, not {language}")
    return "zh" if language == "zh" else "en"


def _question(
    variables: Mapping[str, Any],
    plan: Sequence[ChainStep],
    tools: Mapping[str, Tool],
    rng: random.Random,
    omitted: Omitted = None,
) -> str:
    if _language(variables) == "zh":
        return grammar_zh.question(ChineseText(plan, tools, omitted), rng)
    return grammar.question(PlanText(plan, tools, omitted), rng)


def _tools(variables: Mapping[str, Any]) -> dict[str, Tool]:
    return {view["name"]: Tool.model_validate(view) for view in variables["tools"]}


def _plan(steps: Sequence[Mapping[str, Any]]) -> list[ChainStep]:
    return [ChainStep.model_validate(step) for step in steps]


def _same(left: Tool, right: Tool) -> bool:
    """Whether two tools take the same parameters."""
    keys = ("required", "properties")
    return all(left.parameters.get(key) == right.parameters.get(key) for key in keys)


def _bind(
    plan: Sequence[ChainStep], tools: Mapping[str, Tool], rng: random.Random
) -> list[ChainStep]:
    """The plan with drawn values for what the user states.

    Steps about the same entity share its value; the repeats of a tool get different ones.
    """
    drawn: dict[tuple[str, str, int], Any] = {}
    uses: dict[str, int] = {}
    bound: list[ChainStep] = []
    for step in plan:
        repeat = uses.get(step.tool, 0)
        uses[step.tool] = repeat + 1
        arguments: dict[str, ArgumentSource] = {}
        for name, source in step.arguments.items():
            if source.origin is ArgumentOrigin.TASK:
                value = _shared_value(tools[step.tool], name, repeat, drawn, rng)
                source = source.model_copy(update={"value": value})
            arguments[name] = source
        bound.append(ChainStep(tool=step.tool, arguments=arguments))
    return bound


def _shared_value(
    tool: Tool, name: str, repeat: int, drawn: dict[tuple[str, str, int], Any], rng: random.Random
) -> Any:
    schema = tool.parameters.get("properties", {}).get(name, {})
    hinted = {**schema, **tool.hints.get(name, {})}
    key = (name, str(schema.get(ENTITY)), repeat)
    shared = ENTITY in schema or "enum" in schema
    if shared and key in drawn:
        return drawn[key]
    try:
        value = draw_value(hinted, rng, name, tool.parameters)
    except NoValue as error:
        raise ProviderError(f"no value for {tool.name}.{name}: {error}") from None
    drawn[key] = value
    return value


def _planned(plan: Sequence[ChainStep]) -> tuple[PlannedStep, ...]:
    return tuple(
        PlannedStep(
            tool=step.tool,
            arguments=tuple(
                PlannedArgument(name=name, value=source.value, step=source.step, path=source.path)
                for name, source in step.arguments.items()
            ),
        )
        for step in plan
    )


HANDLERS: OfflineHandlers = {
    CHAIN_TASK: write_chain_task,
    SERVER_TASK: write_server_task,
    DROP_PARAMETER: drop_parameter,
    AUGMENT: augment,
    SCORE: score,
}
