"""What judges see of a trajectory: what the agent was told and offered, question, rounds; no plan.

A conversation with several user messages is one sequence of rounds; each says what the user
wrote just before it. All parts are plain JSON, so that rules, offline judges and prompts read
the same thing. An agent's thoughts are no part of it: they are neither said nor done.
"""

from __future__ import annotations

import json
from typing import Any, TypedDict

from astra.records.message import MessageRole
from astra.records.trajectory import Trajectory
from astra.text.strict_json import STRICT


class SeenTool(TypedDict):
    """A tool that the agent was offered."""

    name: str
    description: str
    parameters: dict[str, Any]
    effect: str
    """``reads`` or ``writes`` as ``Tool.effect``; empty where nobody said."""


class SeenCall(TypedDict):
    """A call that the agent made, with its outcome."""

    tool: str
    arguments: Any
    """The parsed object; the raw text where it is none, or none that JSON knows."""
    status: str
    result: str


class Round(TypedDict):
    """One assistant turn and what its calls returned."""

    user: str
    """What the user wrote before it; empty for the question and where nothing was written."""
    text: str
    calls: list[SeenCall]


class View(TypedDict):
    """A trajectory as rules and judges see it."""

    told: str
    """The system message that the agent was given, word for word; empty if it had none."""
    question: str
    tools: list[SeenTool]
    rounds: list[Round]


def view_of(trajectory: Trajectory) -> View:
    """A trajectory's view. The question is the first user message, wherever it stands."""
    told = [m.content for m in trajectory.messages if m.role == MessageRole.SYSTEM]
    users = [m.content for m in trajectory.messages if m.role == MessageRole.USER]
    tools = [
        SeenTool(
            name=tool.name,
            description=tool.description,
            parameters=tool.parameters,
            effect=tool.effect,
        )
        for tool in trajectory.tools
    ]
    question = users[0] if users else ""
    return View(told="\n".join(told), question=question, tools=tools, rounds=_rounds(trajectory))


def _rounds(trajectory: Trajectory) -> list[Round]:
    # Each call has one tool message, in the calls' order; ids may repeat from turn to turn.
    results = iter([m.content for m in trajectory.messages if m.role == MessageRole.TOOL])
    executed = iter(trajectory.calls)
    rounds: list[Round] = []
    written = ""
    for message in trajectory.messages:
        if message.role == MessageRole.USER and rounds:
            written = message.content
        if message.role != MessageRole.ASSISTANT:
            continue
        calls: list[SeenCall] = []
        for call in message.tool_calls:
            outcome = next(executed, None)
            calls.append(
                SeenCall(
                    tool=call.name,
                    arguments=object_or_text(call.arguments),
                    status=str(outcome.result.status) if outcome else "infra",
                    result=next(results, ""),
                )
            )
        rounds.append(Round(user=written, text=message.content, calls=calls))
        written = ""
    return rounds


def object_or_text(arguments: str) -> Any:
    """A call's arguments as the object that they are, or else their text.

    They are an object where they are strict JSON that can be encoded, however deep. Text
    with halves of characters, which no file takes, has these as escapes.
    """
    try:
        parsed: Any = STRICT.decode(arguments)
        json.dumps(parsed, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        parsed = None
    if isinstance(parsed, dict):
        return parsed
    return arguments.encode("utf-8", "backslashreplace").decode()


Place = tuple[int, int]
"""Where a call stands: its round and its position in the round, both from 0."""


def numbered(place: Place) -> str:
    """A call's number as judges read it: turn and position, both from 1."""
    return f"{place[0] + 1}.{place[1] + 1}"


def placed_calls(view: View) -> list[tuple[Place, SeenCall]]:
    """All calls with their places, in order."""
    return [
        ((number, position), call)
        for number, round_ in enumerate(view["rounds"])
        for position, call in enumerate(round_["calls"])
    ]


def requests(view: View) -> list[str]:
    """Everything that the user wrote, in order."""
    return [view["question"], *(r["user"] for r in view["rounds"] if r["user"])]


def spoken(view: View) -> list[str]:
    """The texts of the turns that call nothing: what the agent said to the user, in order."""
    return [r["text"] for r in view["rounds"] if not r["calls"]]


def final_text(view: View) -> str:
    """The last turn's text if that turn calls nothing, else an empty string."""
    last = view["rounds"][-1] if view["rounds"] else None
    return last["text"] if last and not last["calls"] else ""
