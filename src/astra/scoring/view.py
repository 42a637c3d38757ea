"""What judges see of a trajectory: question, offered tools, rounds. No plan, no system prompt.

All parts are plain JSON, so that rules, offline judges and prompts read the same thing.
"""

from __future__ import annotations

import json
from typing import Any, TypedDict

from astra.records.message import MessageRole
from astra.records.trajectory import Trajectory


class SeenTool(TypedDict):
    name: str
    description: str
    parameters: dict[str, Any]


class SeenCall(TypedDict):
    tool: str
    arguments: Any
    """The parsed object; the raw text where it is no JSON object."""
    status: str
    result: str


class Round(TypedDict):
    """One assistant turn and what its calls returned."""

    text: str
    calls: list[SeenCall]


class View(TypedDict):
    question: str
    tools: list[SeenTool]
    rounds: list[Round]


def view_of(trajectory: Trajectory) -> View:
    """The judge's view. The question is the first user message, wherever it stands."""
    results = {
        message.tool_call_id: message.content
        for message in trajectory.messages
        if message.role == MessageRole.TOOL
    }
    executed = iter(trajectory.calls)
    rounds: list[Round] = []
    for message in trajectory.messages:
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
        rounds.append(Round(text=message.content, calls=calls))
    question = next((m.content for m in trajectory.messages if m.role == MessageRole.USER), "")
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


def final_text(view: View) -> str:
    """The last turn's text if that turn calls nothing, else an empty string."""
    last = view["rounds"][-1] if view["rounds"] else None
    return last["text"] if last and not last["calls"] else ""
