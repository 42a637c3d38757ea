"""What stage ``tasks`` asks about variants of a written task, and the replies it accepts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from astra.llm.protocol import Ask
from astra.records.base import Frozen
from astra.records.task import Task
from astra.records.tool import ToolServer
from astra.tasking.asks import (
    PlannedStep,
    WrittenTask,
    names_wanted,
    server_view,
    steps_view,
    tool_view,
    tools_of,
)
from astra.text.names import suggested_names

DIVERSE = "tasking/diverse"
COMPLICATE = "tasking/complicate"
PERSONA = "tasking/persona"
REPLAN = "tasking/replan"
DROP_PARAMETER = "tasking/drop_parameter"
SOLVABLE_ASK = "tasking/solvable"

Mode = Literal["diverse", "complicate", "persona"]
MODES: tuple[Mode, ...] = ("diverse", "complicate", "persona")


class Rewritten(Frozen):
    """A question written anew from another one."""

    question: str


class PersonalRequest(Frozen):
    """A question as one of the people on offer would ask it."""

    reason: str
    person: int = Field(ge=0)
    """Which of them, from 1; 0: none would ask for this, and there is no question."""
    question: str


class Replanned(Frozen):
    """The calls that a question needs, worked out from the question alone."""

    reason: str
    steps: tuple[PlannedStep, ...]


class Solvability(Frozen):
    """Whether the tools that are left can do what a question asks for."""

    reason: str
    solvable: Literal["yes", "partly", "no"]


def _planned_view(server: ToolServer, task: Task) -> dict[str, Any]:
    """A task with its plan, and the tools that this uses."""
    return {
        "server": server_view(server, task.language),
        "tools": tools_of(server, task.plan),
        "question": task.question,
        "steps": steps_view(task.plan),
    }


def diverse_ask(server: ToolServer, task: Task, sample: int, max_words: int) -> Ask[WrittenTask]:
    """Ask for another situation that takes the same calls, with values of its own."""
    variables = {**_planned_view(server, task), "now": task.now}
    wanted = names_wanted(server.tools, task.plan)
    names = suggested_names(task.id, sample, kinds=wanted, language=task.language)
    return Ask(DIVERSE, variables, WrittenTask, sample, {"max_words": max_words}, names)


def complicate_ask(
    server: ToolServer, task: Task, literals: Sequence[str], sample: int, max_words: int
) -> Ask[Rewritten]:
    """Ask for a more demanding question with the same calls; ``literals`` have to stand in it."""
    variables = {
        "server": server_view(server, task.language),
        "question": task.question,
        "literals": list(literals),
        "now": task.now,
    }
    return Ask(COMPLICATE, variables, Rewritten, sample, {"max_words": max_words})


def persona_ask(
    server: ToolServer,
    task: Task,
    literals: Sequence[str],
    people: Sequence[str],
    sample: int,
    max_words: int,
) -> Ask[PersonalRequest]:
    """Ask for the question as one of ``people``, who introduce themselves, would put it."""
    variables = {
        "server": server_view(server, task.language),
        "question": task.question,
        "literals": list(literals),
        "people": list(people),
        "now": task.now,
    }

    def check(reply: PersonalRequest) -> None:
        if reply.person > len(people):
            raise ValueError(f"person: there is no number {reply.person}, only 0 to {len(people)}")

    limits = {"max_words": max_words}
    return Ask(PERSONA, variables, PersonalRequest, sample, limits, check=check)


def replan_ask(server: ToolServer, original: Task, variant: Task) -> Ask[Replanned]:
    """Ask a judge for the calls that a variant's question needs, without showing its plan.

    ``original`` and ``planned`` are for rules, which cannot read a question; no template shows
    them.
    """
    variables = {
        "server": server_view(server, variant.language),
        "tools": [tool_view(tool) for tool in server.tools],
        "question": variant.question,
        "now": variant.now,
        "original": original.question,
        "planned": steps_view(variant.plan),
    }
    return Ask(REPLAN, variables, Replanned)


def drop_parameter_ask(server: ToolServer, task: Task, step: int, parameter: str) -> Ask[Rewritten]:
    """Ask for a task's question without the value of one argument of its plan."""
    variables = {**_planned_view(server, task), "step": step, "parameter": parameter}
    return Ask(DROP_PARAMETER, variables, Rewritten)


def solvable_ask(server: ToolServer, task: Task) -> Ask[Solvability]:
    """Ask a judge whether the tools that the agent will see can do what the task asks for."""
    variables = {
        "server": server_view(server, task.language),
        "tools": [tool_view(tool) for tool in server.tools if tool.name not in task.withheld_tools],
        "question": task.question,
        "now": task.now,
    }
    return Ask(SOLVABLE_ASK, variables, Solvability)
