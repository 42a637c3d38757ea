"""Tasks that cannot be solved as asked, so that the agent learns to say so.

The paper's models lose exactly there (missing functions and parameters). The expected answers
are the fixed phrases of ``astra.agent.prompt``.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from astra.llm.protocol import ParseError, ProviderError, Teacher
from astra.prompting import template_hash
from astra.records.base import content_id
from astra.records.graph import ArgumentOrigin, ChainStep
from astra.records.score import Rejection
from astra.records.task import Task, TaskKind
from astra.records.tool import ToolServer
from astra.tasking.asks import DROP_PARAMETER, drop_parameter_ask
from astra.tasking.checks import TaskProblem, check_question, leaves, spoken
from astra.tasking.config import TasksConfig
from astra.tasking.drafts import Draft, Origin
from astra.tasking.writing import language_of
from astra.text.words import stands_in

DONORS = 400
"""How many questions are kept to be put to servers that they do not belong to."""

Place = tuple[int, str]
"""The place of a value in a plan: the step's index and the argument's name."""


@dataclass(frozen=True)
class Donor:
    """A question about another server: irrelevant wherever none of its tools is offered."""

    server_id: str
    domain: str
    tools: frozenset[str]
    task_id: str
    question: str
    prompt_hash: str = ""


def donor_of(server: ToolServer, task: Task) -> Donor:
    """A task's question, with what tells where it is irrelevant."""
    tools = frozenset(step.tool for step in task.plan)
    return Donor(server.id, server.domain, tools, task.id, task.question, task.prompt_hash)


def withhold_function(server: ToolServer, draft: Draft, rng: random.Random) -> Draft | Rejection:
    """A task with one of the tools it needs out of the agent's view."""
    task, origin = draft.task, draft.origin.of(TaskKind.MISSING_FUNCTION)
    if len(server.tools) < 2:
        return origin.rejected("nothing_left_to_offer", task.question)
    withheld = rng.choice(sorted({step.tool for step in task.plan}))
    unsolvable = Task(
        server_id=task.server_id,
        chain_id=task.chain_id,
        kind=TaskKind.MISSING_FUNCTION,
        language=task.language,
        question=task.question,
        plan=(),
        parent_id=task.id,
        withheld_tools=(withheld,),
        prompt_hash=task.prompt_hash,
    )
    return Draft(origin, unsolvable)


async def leave_out_parameter(
    server: ToolServer, draft: Draft, place: Place, teacher: Teacher, config: TasksConfig
) -> Draft | Rejection:
    """A task asked without one value that a call needs and nothing else supplies."""
    task, origin = draft.task, draft.origin.of(TaskKind.MISSING_PARAMETER)
    index, name = place
    value = task.plan[index].arguments[name].value
    plan = _without(task.plan, index, name)
    try:
        reply = await teacher.ask(drop_parameter_ask(server, task, index, name))
    except (ProviderError, ParseError) as error:
        return origin.failed(error)
    try:
        check_question(reply.question, plan, server.tools, task.language, config.max_words)
        if any(stands_in(leaf, reply.question) for leaf in leaves(value)):
            raise TaskProblem("value_still_stated", f"{value!r} in {reply.question!r}")
    except TaskProblem as problem:
        return origin.refused(problem, reply.question)
    unsolvable = Task(
        server_id=task.server_id,
        chain_id=task.chain_id,
        kind=TaskKind.MISSING_PARAMETER,
        language=task.language,
        question=reply.question,
        plan=plan,
        parent_id=task.id,
        prompt_hash=template_hash(DROP_PARAMETER),
    )
    return Draft(origin, unsolvable)


def droppable(plan: Sequence[ChainStep]) -> list[Place]:
    """The places whose value can be left out: stated once, in a plan without repeated tools.

    A value that stands in a second argument would still be stated. With a repeated tool the
    question is a list of equal requests, which looks complete without one of them.
    """
    if len({step.tool for step in plan}) < len(plan):
        return []
    stated = [
        (index, name, spoken(source.value))
        for index, step in enumerate(plan)
        for name, source in step.arguments.items()
        if source.origin is ArgumentOrigin.TASK
    ]
    texts = [text for _, _, text in stated]
    return [(index, name) for index, name, text in stated if texts.count(text) == 1]


def _without(plan: Sequence[ChainStep], index: int, name: str) -> tuple[ChainStep, ...]:
    """The plan with None for the value of one argument."""
    step = plan[index]
    blank = step.arguments[name].model_copy(update={"value": None})
    changed = ChainStep(tool=step.tool, arguments={**step.arguments, name: blank})
    return (*plan[:index], changed, *plan[index + 1 :])


class Donors:
    """Questions of the servers so far, at most ``DONORS``, to be put to servers of other domains.

    ``recent`` keeps the last ones and draws by the server's generator. ``stable`` keeps those
    with the least hash and gives each place the one that hashes least with it: when one
    server's document changes, only places that its questions win or lose are asked anew.
    """

    def __init__(self, mode: Literal["recent", "stable"]) -> None:
        self._stable = mode == "stable"
        self._kept: list[Donor] = []

    def __bool__(self) -> bool:
        return bool(self._kept)

    def extend(self, donors: Iterable[Donor]) -> None:
        """Add questions; which of all are kept depends on the mode."""
        self._kept += donors
        if self._stable:
            self._kept.sort(key=lambda donor: content_id(["donor", donor.task_id]))
            del self._kept[DONORS:]
        else:
            del self._kept[:-DONORS]

    def choose(self, server: ToolServer, place: int, rng: random.Random) -> Donor | None:
        """The question for the server's ``place``-th irrelevant task; None if none fits."""
        own = {tool.name for tool in server.tools}
        fitting = [d for d in self._kept if d.domain != server.domain and not d.tools & own]
        if not fitting:
            return None
        if self._stable:
            return min(fitting, key=lambda d: content_id([server.id, place, d.task_id]))
        return rng.choice(fitting)


def misplaced(
    server: ToolServer, donors: Donors, place: int, rng: random.Random
) -> Draft | Rejection:
    """A question from another domain, put to this server."""
    origin = Origin(server.id, f"{TaskKind.IRRELEVANT} {place}")
    donor = donors.choose(server, place, rng)
    if donor is None:
        return origin.rejected("no_foreign_question")
    irrelevant = Task(
        server_id=server.id,
        chain_id=None,
        kind=TaskKind.IRRELEVANT,
        language=language_of(donor.question, server.language),
        question=donor.question,
        plan=(),
        parent_id=donor.task_id,
        prompt_hash=donor.prompt_hash,
    )
    return Draft(origin, irrelevant)
