"""The offline teacher and judge of stage ``tasks``: a rule for each ask."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from astra.llm.protocol import OfflineHandlers, ProviderError
from astra.records.graph import ArgumentOrigin, ArgumentSource, ChainStep
from astra.records.tool import Tool
from astra.tasking.asks import (
    CHAIN_TASK,
    SCORE,
    SERVER_TASK,
    OnlyStep,
    StatedArgument,
    TaskScores,
    WrittenCall,
    WrittenTask,
    WrongValue,
)
from astra.tasking.checks import leaked_names, leaves
from astra.tasking.offline import variants
from astra.tasking.offline.reading import plan_in, planned, question_for, tools_in
from astra.text.values import ENTITY, NoValue, draw_value
from astra.text.words import stands_in

_ARITHMETIC = re.compile(r"[\d\s+-]+")
MORE_DRAWS = 7
"""How often values are drawn again for calls that came out equal: a tool may know few subjects."""
LONG_QUESTION = 40
DEEP_NESTING = 4


def write_chain_task(variables: Mapping[str, Any], rng: random.Random) -> WrittenTask:
    """Values for what the user states, then a question by grammar."""
    tools = tools_in(variables)
    plan = _bind(plan_in(variables["steps"]), tools, rng)
    return WrittenTask(question=question_for(variables, plan, tools, rng), steps=planned(plan))


def write_server_task(
    variables: Mapping[str, Any], rng: random.Random
) -> WrittenTask | WrittenCall:
    """``number`` calls side by side: one tool on several subjects, or several on one subject."""
    tools = tools_in(variables)
    number: int = variables["number"]
    first = rng.choice(sorted(variables["focus"]) or sorted(tools))
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
    for _ in range(MORE_DRAWS):
        if _distinct(plan):
            break
        plan = _bind(unbound, tools, rng)
    if not _distinct(plan):
        raise ProviderError(f"{first} cannot be asked about {number} different subjects")
    question = question_for(variables, plan, tools, rng)
    if number == 1:
        return WrittenCall(question=question, steps=(_only(plan[0]),))
    return WrittenTask(question=question, steps=planned(plan))


def _distinct(plan: Sequence[ChainStep]) -> bool:
    return len({step.model_dump_json() for step in plan}) == len(plan)


def score(variables: Mapping[str, Any], rng: random.Random) -> TaskScores:
    """Labels by rule; what a rule cannot see (style) keeps the best label."""
    question: str = variables["question"]
    plan = plan_in(variables["steps"])
    tools = tools_in(variables)
    return TaskScores(
        reason="by rule",
        wrong_values=tuple(_wrong_values(question, variables["unstated"])),
        quality=_quality(question, list(tools.values())),
        realism=_realism(question),
        necessity=_necessity(plan),
        difficulty=min(5, 1 + len(plan)),
        uniqueness=5 if len({step.tool for step in plan}) == len(plan) else 4,
    )


def _wrong_values(question: str, unstated: Sequence[Mapping[str, Any]]) -> Iterator[WrongValue]:
    """Every value that does not stand in the question letter by letter: rules derive nothing."""
    for value in unstated:
        missing = [leaf for leaf in leaves(value["value"]) if not stands_in(leaf, question)]
        if missing:
            yield WrongValue(problem=f"{missing} not in the request", place=value["place"])


def _quality(question: str, tools: Sequence[Tool]) -> int:
    label = 5
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


def _only(step: ChainStep) -> OnlyStep:
    given = (StatedArgument(name=name, value=of.value) for name, of in step.arguments.items())
    return OnlyStep(tool=step.tool, arguments=tuple(given))


HANDLERS: OfflineHandlers = {
    CHAIN_TASK: write_chain_task,
    SERVER_TASK: write_server_task,
    SCORE: score,
    **variants.HANDLERS,
}
