"""What stage ``tasks`` asks a teacher and a judge, and the replies it accepts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pydantic import Field

from astra.llm.protocol import Ask
from astra.records.base import Frozen
from astra.records.graph import ArgumentOrigin, ArgumentSource, Chain, ChainStep
from astra.records.task import Task
from astra.records.tool import Tool, ToolServer
from astra.tasking.stated import Standing, chosen_values, given_values
from astra.text.names import NameKind, kinds_of_names, suggested_names

CHAIN_TASK = "tasking/chain_task"
SERVER_TASK = "tasking/server_task"
SCORE = "tasking/score"


class StatedArgument(Frozen):
    """A value that the user gives, or (``chosen``) one that the agent is free to pick.

    ``said`` quotes the user's words for it where the value itself is not said; what there are
    words for is not chosen.
    """

    name: str
    said: str = ""
    chosen: bool = False
    value: Any = None


class PlannedArgument(StatedArgument):
    """A stated argument, or (``step`` set) the value at ``path`` of that step's result."""

    step: int | None = None
    path: tuple[str | int, ...] = ()


class PlannedStep(Frozen):
    """One call of a planned solution."""

    tool: str
    arguments: tuple[PlannedArgument, ...]


class WrittenTask(Frozen):
    """A question and the steps that solve it."""

    question: str
    steps: tuple[PlannedStep, ...]


class OnlyStep(Frozen):
    """The one call of a planned solution: no earlier result gives it anything."""

    tool: str
    arguments: tuple[StatedArgument, ...]


class WrittenCall(Frozen):
    """A question and the one call that solves it."""

    question: str
    steps: tuple[OnlyStep, ...]


class WrongValue(Frozen):
    """A planned value that the request neither states nor gives reason for, nor leaves open."""

    problem: str
    place: str
    """``0.city``: argument ``city`` of the call numbered 0."""


class TaskScores(Frozen):
    """The judge's labels from 1 (worst) to 5 (best); the reason comes first in the reply."""

    reason: str
    wrong_values: tuple[WrongValue, ...]
    quality: int = Field(ge=1, le=5)
    realism: int = Field(ge=1, le=5)
    necessity: int = Field(ge=1, le=5)
    difficulty: int = Field(ge=1, le=5)
    uniqueness: int = Field(ge=1, le=5)


def as_plan(steps: Sequence[PlannedStep | OnlyStep]) -> tuple[ChainStep, ...]:
    """A reply's steps as a plan with bound values; an argument with no source is left out."""
    return tuple(
        ChainStep(
            tool=step.tool,
            arguments={
                argument.name: source
                for argument in step.arguments
                if (source := _source(argument)) is not None
            },
        )
        for step in steps
    )


def _source(argument: StatedArgument) -> ArgumentSource | None:
    if isinstance(argument, PlannedArgument) and argument.step is not None:
        return ArgumentSource(origin=ArgumentOrigin.OUTPUT, step=argument.step, path=argument.path)
    if argument.value is None:
        return None
    said = argument.said.strip()
    if argument.chosen and not said:
        return ArgumentSource(origin=ArgumentOrigin.CHOSEN, value=argument.value)
    return ArgumentSource(origin=ArgumentOrigin.TASK, value=argument.value, said=said)


def tool_view(tool: Tool) -> dict[str, Any]:
    """A tool as writers of tasks see it.

    With the hints which values make live calls succeed, and with a result's schema even if it was
    inferred: a value may come from there.
    """
    return {**tool.view(), "output_schema": tool.result_schema, "hints": tool.hints}


def server_view(server: ToolServer, language: str) -> dict[str, str]:
    """The server as a writer sees it: ``language`` is the one to write in."""
    return {**server.view(), "language": language}


def steps_view(steps: Sequence[ChainStep]) -> list[dict[str, Any]]:
    """The steps of a plan as templates show them."""
    return [step.model_dump(mode="json") for step in steps]


def tools_of(server: ToolServer, steps: Sequence[ChainStep]) -> list[dict[str, Any]]:
    """The views of the tools that a plan uses, in the server's order."""
    names = {step.tool for step in steps}
    return [tool_view(tool) for tool in server.tools if tool.name in names]


def names_wanted(
    tools: Sequence[Tool], steps: Sequence[ChainStep] | None = None
) -> tuple[NameKind, ...]:
    """The kinds of names that a user's values want where none is known to work.

    ``steps`` say which arguments the user states; without them it may be any.
    """
    stated = {
        (step.tool, name)
        for step in steps or ()
        for name, source in step.arguments.items()
        if source.origin is ArgumentOrigin.TASK
    }
    return kinds_of_names(
        (name, schema)
        for tool in tools
        for name, schema in tool.parameters.get("properties", {}).items()
        if name not in tool.hints and (steps is None or (tool.name, name) in stated)
    )


def chain_task_ask(
    server: ToolServer, chain: Chain, sample: int, language: str, max_words: int, now: str = ""
) -> Ask[WrittenTask]:
    """Ask for a question that a chain of tools answers, and for the values in it."""
    variables = {
        "server": server_view(server, language),
        "tools": tools_of(server, chain.steps),
        "steps": steps_view(chain.steps),
        "sketch": chain.task_sketch,
        "now": now,
    }
    wanted = names_wanted(server.tools, chain.steps)
    names = suggested_names(server.id, chain.id, sample, kinds=wanted, language=language)
    return Ask(CHAIN_TASK, variables, WrittenTask, sample, {"max_words": max_words}, names)


def server_task_ask(
    server: ToolServer,
    number: int,
    sample: int,
    language: str,
    max_words: int,
    now: str = "",
    focus: Sequence[str] = (),
) -> Ask[WrittenTask] | Ask[WrittenCall]:
    """Ask for a question that takes ``number`` calls of the server's tools, some of ``focus``."""
    variables = {
        "server": server_view(server, language),
        "tools": [tool_view(tool) for tool in server.tools],
        "number": number,
        "focus": list(focus),
        "now": now,
    }
    wanted = names_wanted(server.tools)
    names = suggested_names(server.id, number, sample, kinds=wanted, language=language)
    limits = {"max_words": max_words}
    if number == 1:
        return Ask(SERVER_TASK, variables, WrittenCall, sample, limits, names)
    return Ask(SERVER_TASK, variables, WrittenTask, sample, limits, names)


def repeated(ask: Ask[Any], reply: Frozen, problem: str) -> Ask[Any]:
    """The ask once more, with the reply that cannot be used and what is wrong with it."""
    again = {"reply": reply.model_dump(mode="json"), "problem": problem}
    return replace(ask, variables={**ask.variables, "again": again})


def score_ask(server: ToolServer, task: Task) -> Ask[TaskScores]:
    """Ask the judge for a task's labels, and which of its planned values are wrong.

    Without a plan it sees all tools in full.
    """
    plan = task.plan
    tools = tools_of(server, plan) if plan else [tool_view(tool) for tool in server.tools]
    names = {tool["name"] for tool in tools}
    given = given_values(task.question, plan, {tool.name: tool for tool in server.tools})
    chosen = chosen_values(plan)
    variables = {
        "server": server.view(),
        "tools": tools,
        "others": [
            {"name": tool.name, "description": tool.description}
            for tool in server.tools
            if tool.name not in names
        ],
        "withheld": list(task.withheld_tools),
        "question": task.question,
        "kind": task.kind.value,
        "now": task.now,
        "steps": steps_view(plan),
        "unstated": [
            {"place": one.place, "said": one.source.said, "value": one.source.value}
            for one in given
            if one.standing is not Standing.STATED
        ],
        "chosen": chosen,
    }
    places = {*(one.place for one in given), *chosen}
    return Ask(SCORE, variables, TaskScores, check=_points_to(places))


def _points_to(places: set[str]) -> Callable[[TaskScores], None]:
    """The check that a judge's wrong values are some of ``places``."""

    def check(reply: TaskScores) -> None:
        unknown = [wrong.place for wrong in reply.wrong_values if wrong.place not in places]
        if unknown:
            there = ", ".join(sorted(places)) or "none"
            raise ValueError(f"wrong_values: there is no place {unknown}; the places are: {there}")

    return check
