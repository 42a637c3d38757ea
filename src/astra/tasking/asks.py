"""What stage ``tasks`` asks a teacher and a judge, and the replies it accepts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from astra.llm.protocol import Ask
from astra.records.base import Frozen
from astra.records.graph import ArgumentOrigin, ArgumentSource, Chain, ChainStep
from astra.records.task import Task
from astra.records.tool import Tool, ToolServer
from astra.tasking.checks import MIN_KEPT_WORDS
from astra.text.names import suggested_names

CHAIN_TASK = "tasking/chain_task"
SERVER_TASK = "tasking/server_task"
DROP_PARAMETER = "tasking/drop_parameter"
AUGMENT = "tasking/augment"
SCORE = "tasking/score"

Mode = Literal["diverse", "complicate", "persona"]
MODES: tuple[Mode, ...] = ("diverse", "complicate", "persona")


class PlannedArgument(Frozen):
    """A value from the question, or (``step`` set) the value at ``path`` of that step's result."""

    name: str
    value: Any = None
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


class Rewritten(Frozen):
    """A question written anew from another one."""

    question: str


class TaskScores(Frozen):
    """The judge's labels from 1 (worst) to 5 (best); the reason comes first in the reply."""

    reason: str
    quality: int = Field(ge=1, le=5)
    realism: int = Field(ge=1, le=5)
    necessity: int = Field(ge=1, le=5)
    difficulty: int = Field(ge=1, le=5)
    uniqueness: int = Field(ge=1, le=5)


def as_plan(steps: Sequence[PlannedStep]) -> tuple[ChainStep, ...]:
    """A reply's steps as a plan with bound values."""
    return tuple(
        ChainStep(
            tool=step.tool,
            arguments={
                argument.name: ArgumentSource(
                    origin=ArgumentOrigin.TASK if argument.step is None else ArgumentOrigin.OUTPUT,
                    value=argument.value if argument.step is None else None,
                    step=argument.step,
                    path=argument.path,
                )
                for argument in step.arguments
            },
        )
        for step in steps
    )


def _tool_view(tool: Tool) -> dict[str, Any]:
    """A tool as writers of tasks see it: with the hints which values make live calls succeed."""
    return {**tool.view(), "hints": tool.hints}


def _server_view(server: ToolServer, language: str) -> dict[str, str]:
    """The server as a writer sees it: ``language`` is the one to write in."""
    return {**server.view(), "language": language}


def _steps_view(steps: Sequence[ChainStep]) -> list[dict[str, Any]]:
    return [step.model_dump(mode="json") for step in steps]


def _tools_of(server: ToolServer, steps: Sequence[ChainStep]) -> list[dict[str, Any]]:
    """The views of the tools that a plan uses, in the server's order."""
    names = {step.tool for step in steps}
    return [_tool_view(tool) for tool in server.tools if tool.name in names]


def chain_task_ask(
    server: ToolServer, chain: Chain, sample: int, language: str, max_words: int
) -> Ask[WrittenTask]:
    """Ask for a question that a chain of tools answers, and for the values in it."""
    variables = {
        "server": _server_view(server, language),
        "tools": _tools_of(server, chain.steps),
        "steps": _steps_view(chain.steps),
        "sketch": chain.task_sketch,
    }
    names = suggested_names(server.id, chain.id, sample)
    return Ask(CHAIN_TASK, variables, WrittenTask, sample, {"max_words": max_words}, names)


def server_task_ask(
    server: ToolServer, number: int, sample: int, language: str, max_words: int
) -> Ask[WrittenTask]:
    """Ask for a question that takes ``number`` calls of the server's tools."""
    variables = {
        "server": _server_view(server, language),
        "tools": [_tool_view(tool) for tool in server.tools],
        "number": number,
    }
    names = suggested_names(server.id, number, sample)
    return Ask(SERVER_TASK, variables, WrittenTask, sample, {"max_words": max_words}, names)


def drop_parameter_ask(server: ToolServer, task: Task, step: int, parameter: str) -> Ask[Rewritten]:
    """Ask for a task's question without the value of one argument of its plan."""
    variables = {
        "server": _server_view(server, task.language),
        "tools": _tools_of(server, task.plan),
        "question": task.question,
        "steps": _steps_view(task.plan),
        "step": step,
        "parameter": parameter,
    }
    return Ask(DROP_PARAMETER, variables, Rewritten)


def augment_ask(
    server: ToolServer,
    task: Task,
    literals: Sequence[str],
    mode: Mode,
    persona: str,
    sample: int,
    max_words: int,
) -> Ask[Rewritten]:
    """Ask for a variant of a task's question in which every one of ``literals`` still stands."""
    variables = {
        "server": _server_view(server, task.language),
        "question": task.question,
        "literals": list(literals),
        "mode": mode,
        "persona": persona,
    }
    limits = {"max_words": max_words, "kept_percent": round(100 * MIN_KEPT_WORDS)}
    return Ask(AUGMENT, variables, Rewritten, sample, limits)


def score_ask(
    server: ToolServer, question: str, kind: str, steps: Sequence[ChainStep]
) -> Ask[TaskScores]:
    """Ask the judge for a question's labels; without ``steps`` it sees all tools in full."""
    tools = _tools_of(server, steps) if steps else [_tool_view(tool) for tool in server.tools]
    names = {tool["name"] for tool in tools}
    variables = {
        "server": server.view(),
        "tools": tools,
        "others": [
            {"name": tool.name, "description": tool.description}
            for tool in server.tools
            if tool.name not in names
        ],
        "question": question,
        "kind": kind,
        "steps": _steps_view(steps),
    }
    return Ask(SCORE, variables, TaskScores)
