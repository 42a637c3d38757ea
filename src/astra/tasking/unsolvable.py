"""Tasks that cannot be solved as asked, so that the agent learns to say so.

The paper's models lose exactly there (missing functions and parameters). The expected answers
are the fixed phrases of ``astra.agent.prompt``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from astra.llm.protocol import ParseError, ProviderError, Teacher
from astra.prompting import joined_hashes, template_hash
from astra.records.base import content_id
from astra.records.graph import ArgumentOrigin, ChainStep
from astra.records.score import Rejection
from astra.records.task import Task, TaskKind
from astra.records.tool import Tool, ToolServer
from astra.tasking.checks import TaskProblem, check_question, spoken
from astra.tasking.config import TasksConfig
from astra.tasking.drafts import Draft, Origin
from astra.tasking.stated import still_said
from astra.tasking.variant_asks import (
    DROP_PARAMETER,
    SOLVABLE_ASK,
    drop_parameter_ask,
    solvable_ask,
)
from astra.tasking.writing import language_of
from astra.text.words import plain

DONORS = 400
"""How many questions are kept to be put to servers that they do not belong to."""

Place = tuple[int, str]
"""The place of a value in a plan: the step's index and the argument's name."""


@dataclass(frozen=True)
class Donor:
    """A task of another server: irrelevant wherever none of its tools is offered."""

    domain: str
    tools: frozenset[str]
    task: Task


def donor_of(server: ToolServer, task: Task) -> Donor:
    """A task with what tells where it is irrelevant."""
    return Donor(server.domain, frozenset(step.tool for step in task.plan), task)


def withhold_function(draft: Draft) -> Draft:
    """A task with one of the tools it needs out of the agent's view; which one is drawn by hash."""
    task = draft.task
    tools = {step.tool for step in task.plan}
    withheld = min(tools, key=lambda name: content_id(["withheld", task.id, name]))
    unsolvable = _derived(task, TaskKind.MISSING_FUNCTION, withheld_tools=(withheld,))
    return Draft(draft.origin.of(TaskKind.MISSING_FUNCTION), unsolvable)


def _derived(task: Task, kind: TaskKind, **changes: Any) -> Task:
    """A task without a solution, made from one that has one; without its plan and scores."""
    kept = {"plan": (), "scores": {}, "kind": kind, "parent_id": task.id, "id": ""}
    return Task.model_validate(task.model_dump() | kept | changes)


async def check_unsolved(server: ToolServer, draft: Draft, judge: Teacher) -> Draft | Rejection:
    """The draft, if a judge agrees that the tools on offer cannot do what it asks for.

    Of a request that does not belong to the server they can do no part at all; where one tool is
    missing, the others may still do theirs.
    """
    task, origin = draft.task, draft.origin
    try:
        reply = await judge.ask(solvable_ask(server, task))
    except (ProviderError, ParseError) as error:
        return origin.failed(error, task.question)
    partly = task.kind is TaskKind.IRRELEVANT and reply.solvable == "partly"
    if partly or reply.solvable == "yes":
        return origin.rejected("still_solvable", task.question, reply.reason)
    prompt_hash = joined_hashes(task.prompt_hash, template_hash(SOLVABLE_ASK))
    return Draft(origin, task.model_copy(update={"prompt_hash": prompt_hash}))


async def leave_out_parameter(
    server: ToolServer, draft: Draft, place: Place, teacher: Teacher, config: TasksConfig
) -> Draft | Rejection:
    """A task asked without one value that a call needs and nothing else supplies."""
    task, origin = draft.task, draft.origin.of(TaskKind.MISSING_PARAMETER)
    index, name = place
    source = task.plan[index].arguments[name]
    plan = _without(task.plan, index, name)
    tool = _by_name(server)[task.plan[index].tool]
    try:
        reply = await teacher.ask(drop_parameter_ask(server, task, index, name))
    except (ProviderError, ParseError) as error:
        return origin.failed(error, task.question)
    question = reply.question
    try:
        check_question(question, plan, server.tools, task.language, config.max_words)
        if still_said(question, source, tool, name):
            raise TaskProblem("value_still_stated", f"{source.value!r} in {question!r}")
    except TaskProblem as problem:
        return origin.refused(problem, question)
    changes = {"question": question, "plan": plan, "prompt_hash": template_hash(DROP_PARAMETER)}
    return Draft(origin, _derived(task, TaskKind.MISSING_PARAMETER, **changes))


def place_to_leave_out(server: ToolServer, task: Task) -> Place | None:
    """The value that a task can be asked without, drawn by hash; None if there is none."""
    places = droppable(task.question, task.plan, _by_name(server))
    return min(places, key=lambda place: content_id(["left out", task.id, *place]), default=None)


def _by_name(server: ToolServer) -> dict[str, Tool]:
    return {tool.name: tool for tool in server.tools}


def droppable(question: str, plan: Sequence[ChainStep], tools: Mapping[str, Tool]) -> list[Place]:
    """The places whose value can be left out: required, said once, in a plan without repeats.

    Without an optional value the call can still be made. A value that stands in a second argument
    would still be stated; of one that no rule finds in the question, none could tell whether it
    was left out. With a repeated tool the question is a list of equal requests, which looks
    complete without one of them.
    """
    if len({step.tool for step in plan}) < len(plan):
        return []
    stated = [
        (index, name, plain(source.said or spoken(source.value)))
        for index, step in enumerate(plan)
        for name, source in step.arguments.items()
        if source.origin is ArgumentOrigin.TASK
    ]
    texts = [text for _, _, text in stated]
    return [
        (index, name)
        for index, name, text in stated
        if texts.count(text) == 1
        and _is_needed(tools[plan[index].tool], name)
        and still_said(question, plan[index].arguments[name], tools[plan[index].tool], name)
    ]


def _is_needed(tool: Tool, parameter: str) -> bool:
    """Whether a call of the tool cannot be made without a value for the parameter."""
    schema = tool.parameters.get("properties", {}).get(parameter)
    has_default = isinstance(schema, Mapping) and "default" in schema
    return parameter in tool.parameters.get("required", ()) and not has_default


def _without(plan: Sequence[ChainStep], index: int, name: str) -> tuple[ChainStep, ...]:
    """The plan with None for the value of one argument."""
    step = plan[index]
    blank = step.arguments[name].model_copy(update={"value": None, "said": ""})
    changed = ChainStep(tool=step.tool, arguments={**step.arguments, name: blank})
    return (*plan[:index], changed, *plan[index + 1 :])


class Donors:
    """Questions of the servers so far, at most ``DONORS``, to be put to servers of other domains.

    ``recent`` keeps the last ones. ``stable`` keeps those with the least hash: when one server's
    document changes, only places that its questions win or lose are asked anew. A place has the
    one of them that hashes least with it.
    """

    def __init__(self, mode: Literal["recent", "stable"]) -> None:
        self._stable = mode == "stable"
        self._kept: list[Donor] = []
        self._owed = 0

    def extend(self, donors: Iterable[Donor]) -> None:
        """Add questions; which of all are kept depends on the mode."""
        self._kept += donors
        if self._stable:
            self._kept.sort(key=lambda donor: content_id(["donor", donor.task.id]))
            del self._kept[DONORS:]
        else:
            del self._kept[:-DONORS]

    def due(self, wanted: int, fitting: Sequence[Donor]) -> int:
        """How many questions to put to a server that wants so many.

        Nothing fits the first server, and others that come before any of another domain. What they
        want goes to later ones, to each at most as much as it wants itself.
        """
        if not fitting:
            self._owed += wanted
            return 0
        more = min(self._owed, wanted)
        self._owed -= more
        return wanted + more

    def fitting(self, server: ToolServer) -> tuple[Donor, ...]:
        """The questions so far that may be put to the server."""
        own = {tool.name for tool in server.tools}
        return tuple(d for d in self._kept if d.domain != server.domain and not d.tools & own)


def misplaced(server: ToolServer, fitting: Sequence[Donor], place: int) -> Draft:
    """A question from another domain, put to this server as its ``place``-th irrelevant one.

    ``fitting`` has one at least.
    """
    task = min(fitting, key=lambda d: content_id([server.id, place, d.task.id])).task
    irrelevant = _derived(
        task,
        TaskKind.IRRELEVANT,
        server_id=server.id,
        chain_id=None,
        language=language_of(task.question, server.language),
    )
    return Draft(Origin(server.id, f"{TaskKind.IRRELEVANT} {place}"), irrelevant)
