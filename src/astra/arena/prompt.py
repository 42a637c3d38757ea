"""The first messages of an arena's episode, and those of a user who talks."""

from __future__ import annotations

import json
from collections.abc import Sequence

from astra.agent.prompt import AGENT_SYSTEM_PROMPT
from astra.arena.worlds import base_of
from astra.records.environment import Arena
from astra.records.message import Message, MessageRole
from astra.records.tool import Tool
from astra.records.world import TraceEvent

NEW_TOOLS = "Functions that you may call from now on, one JSON document a line:"
"""What stands between a user's words and the documents of the tools that they bring."""


def initial_messages(arena: Arena) -> tuple[Message, Message]:
    """The system prompt that every track shows, or the policy of the world, then the question."""
    system = base_of(arena).world.policy if arena.world_id else AGENT_SYSTEM_PROMPT
    return (
        Message(role=MessageRole.SYSTEM, content=system),
        Message(role=MessageRole.USER, content=arena.main_question),
    )


def user_message(turn: TraceEvent, tools: Sequence[Tool]) -> Message:
    """A turn of the user as the agent reads it: the words, then the documents of the tools that it
    brings, which are among ``tools``. So a prompt that was rendered before has them too."""
    brought = [tool for tool in tools if tool.name in turn.adds_tools]
    lines = [document(tool) for tool in brought]
    content = "\n".join([f"{turn.text}\n\n{NEW_TOOLS}", *lines]) if lines else turn.text
    return Message(role=MessageRole.USER, content=content)


def document(tool: Tool) -> str:
    """A tool's document as it stands in a message."""
    return json.dumps(tool.openai(), ensure_ascii=False)
