"""What judges see of a trajectory: question, offered tools, rounds; no plan, no system prompt.

A conversation with several user messages is one sequence of rounds; each says what the user
wrote just before it. All parts are plain JSON, so that rules, offline judges and prompts read
the same thing.
"""

from __future__ import annotations

import json
from typing import Any, TypedDict

from astra.records.message import MessageRole
from astra.records.trajectory import Trajectory


class SeenTool(TypedDict):
    """A tool that the agent was offered."""

    name: str
    description: str
    parameters: dict[str, Any]


class SeenCall(TypedDict):
    """A call that the agent made, with its outcome."""

    tool: str
    arguments: Any
    """The parsed object; the raw text where it is no JSON object."""
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

    question: str
    tools: list[SeenTool]
    rounds: list[Round]


def view_of(trajectory: Trajectory) -> View:
    """A trajectory's view. The question is the first user message, wherever it stands."""
    results = {
        message.tool_call_id: message.content
        for message in trajectory.messages
        if message.role == MessageRole.TOOL
    }
    executed = iter(trajectory.calls)
    rounds: list[Round] = []
    users = [m.content for m in trajectory.messages if m.role == MessageRole.USER]
    question, written = (users[0] if users else ""), ""
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
                    arguments=_arguments(call.arguments),
                    status=str(outcome.result.status) if outcome else "infra",
                    result=results.get(call.id, ""),
                )
            )
        rounds.append(Round(user=written, text=message.content, calls=calls))
        written = ""
    tools = [
        SeenTool(name=tool.name, description=tool.description, parameters=tool.parameters)
        for tool in trajectory.tools
    ]
    return View(question=question, tools=tools, rounds=rounds)


def _arguments(text: str) -> Any:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return parsed if isinstance(parsed, dict) else text


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
