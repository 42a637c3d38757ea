"""What a user asks for after their first request: another task, or a wish that a model writes.

A follow-up is about a person or thing of the first request, so that both can be one user's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from astra.llm.protocol import Ask
from astra.records.base import content_id
from astra.records.task import Task, TaskKind
from astra.records.tool import Tool, ToolServer
from astra.text.similarity import jaccard, shingles
from astra.trajectories.opening import spoken
from astra.trajectories.stated import Thing, comparable, stated_things

TEMPLATE = "trajectories/follow_up"
ASKED_BY_OTHERS = 12
"""How many questions of other tasks a new wish is told to differ from."""
SAME_WISH = 0.6
"""The similarity of words from which on two requests are the same one."""
SOLVABLE = (TaskKind.CHAIN, TaskKind.SERVER)


def paired(
    tasks: Sequence[Task], server: ToolServer, opens: Callable[[Task], bool]
) -> dict[str, Task]:
    """Task id -> the task of the same server that its user asks for next.

    ``opens`` says which tasks are to begin a conversation; without a fitting partner a task has
    none. No task is asked for twice, and one that is does not begin a conversation itself. Both
    speak of a person or thing in common, in one language.
    """
    by_id = {task.id: task for task in tasks}
    order = sorted(tasks, key=lambda task: content_id(["follow-up", task.id]))
    things = {task.id: _comparable_things(task, by_id, server) for task in order}
    about: dict[str, list[Task]] = {}
    for task in order:
        if task.kind in SOLVABLE and task.plan:
            for thing in things[task.id]:
                about.setdefault(thing, []).append(task)
    pairs: dict[str, Task] = {}
    taken: set[str] = set()
    for first in order:
        if first.id in taken or not opens(first):
            continue
        alike = [task for thing in things[first.id] for task in about.get(thing, [])]
        unused = [task for task in alike if task.id not in taken | pairs.keys()]
        free = [task for task in unused if _may_follow(task, first, by_id)]
        if free:
            # Tasks that are to open a conversation themselves come last.
            pairs[first.id] = min(free, key=opens)
            taken.add(pairs[first.id].id)
    return pairs


def _comparable_things(
    task: Task, by_id: Mapping[str, Task], server: ToolServer
) -> dict[str, None]:
    """What a task speaks of; one without a plan speaks of the same as the task it came from."""
    whole = task if task.plan else by_id.get(task.parent_id or "", task)
    return dict.fromkeys(comparable(thing) for thing in stated_things(whole, server))


def _may_follow(task: Task, first: Task, by_id: Mapping[str, Task]) -> bool:
    related = _origin(task, by_id) == _origin(first, by_id)
    withheld = {step.tool for step in task.plan} & set(first.withheld_tools)
    differs = task.plan != first.plan and task.question != first.question
    return not related and not withheld and differs and task.language == first.language


def _origin(task: Task, by_id: Mapping[str, Task]) -> str:
    """The id of the base task that a task came from: a refusal of a variant has two ancestors."""
    while task.parent_id is not None:
        parent = by_id.get(task.parent_id)
        if parent is None:
            return task.parent_id
        task = parent
    return task.id


class FollowUp(BaseModel):
    """A user's next wish; ``request`` is empty where none comes naturally."""

    model_config = ConfigDict(extra="forbid")
    reason: str
    about: str
    """The person or thing of the first request that it is about, as it stands there."""
    request: str
    values: list[str]
    """The names, ids and places in the request, as they stand there."""


def follow_up_ask(
    first: Task,
    things: Sequence[Thing],
    server: ToolServer,
    tools: Sequence[Tool],
    others: Sequence[str],
    sample: int,
) -> Ask[FollowUp]:
    """The ask for the next wish of the user of ``first``, which speaks of ``things``.

    ``others`` are questions of other tasks; a reply that repeats one is refused.
    """
    variables: dict[str, Any] = {
        "server": server.title or server.name,
        "server_description": server.description,
        "tools": [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in tools
        ],
        "language": first.language,
        "now": spoken(first.now),
        "question": first.question,
        "things": list(things),
        "others": list(others),
    }

    def check(reply: FollowUp) -> None:
        check_follow_up(reply, [first.question, *others], things)

    return Ask(TEMPLATE, variables, FollowUp, sample, check=check)


def check_follow_up(reply: FollowUp, asked: Sequence[str], things: Sequence[Thing]) -> None:
    """Raise ValueError if a wish is about nothing of the first request, names what it does not
    say, or repeats a request; ``asked`` begins with the first one.
    """
    if not reply.request.strip():
        return
    about, request = comparable(reply.about), comparable(reply.request)
    known = {comparable(thing) for thing in things}
    if not about or (about not in known and about not in comparable(asked[0])):
        raise ValueError(
            f"`about` has to be a person or thing of the first request, as it stands there; "
            f"{reply.about!r} is not in it"
        )
    for value in reply.values:
        if comparable(value) not in request:
            raise ValueError(f"{value!r} of `values` does not stand in `request`")
    words = shingles(reply.request)
    for earlier in asked:
        if jaccard(words, shingles(earlier)) >= SAME_WISH:
            raise ValueError(f"`request` says the same as {earlier[:200]!r}; it has to differ")
