"""What the offline rules of stage ``tasks`` read out of an ask's variables."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from astra.llm.protocol import ProviderError
from astra.records.graph import ArgumentOrigin, ChainStep
from astra.records.tool import Tool
from astra.tasking.asks import PlannedArgument, PlannedStep
from astra.tasking.offline import grammar, grammar_zh
from astra.tasking.offline.grammar import Omitted, PlanText
from astra.tasking.offline.grammar_zh import ChineseText


def language_in(variables: Mapping[str, Any]) -> str:
    """en or zh. Raises ProviderError for any other language."""
    language = variables["server"]["language"]
    if language not in ("en", "und", "zh"):
        raise ProviderError(f"the offline teacher writes English and Chinese, not {language}")
    return "zh" if language == "zh" else "en"


def question_for(
    variables: Mapping[str, Any],
    plan: Sequence[ChainStep],
    tools: Mapping[str, Tool],
    rng: random.Random,
    omitted: Omitted = None,
) -> str:
    """A question for the plan, in the ask's language."""
    if language_in(variables) == "zh":
        return grammar_zh.question(ChineseText(plan, tools, omitted), rng)
    return grammar.question(PlanText(plan, tools, omitted), rng)


def tools_in(variables: Mapping[str, Any]) -> dict[str, Tool]:
    """The tools that the ask shows, by name."""
    return {view["name"]: Tool.model_validate(view) for view in variables["tools"]}


def plan_in(steps: Sequence[Mapping[str, Any]]) -> list[ChainStep]:
    """Steps as an ask shows them, as records."""
    return [ChainStep.model_validate(step) for step in steps]


def planned(plan: Sequence[ChainStep]) -> tuple[PlannedStep, ...]:
    """A plan as a reply states it."""
    return tuple(
        PlannedStep(
            tool=step.tool,
            arguments=tuple(
                PlannedArgument(
                    name=name,
                    said=source.said,
                    chosen=source.origin is ArgumentOrigin.CHOSEN,
                    value=source.value,
                    step=source.step,
                    path=source.path,
                )
                for name, source in step.arguments.items()
            ),
        )
        for step in plan
    )
