"""The first messages of an arena's episode."""

from __future__ import annotations

from astra.agent.prompt import AGENT_SYSTEM_PROMPT
from astra.records.environment import Arena
from astra.records.message import Message, MessageRole


def initial_messages(arena: Arena) -> tuple[Message, Message]:
    """The system prompt that every track shows, then the main question."""
    return (
        Message(role=MessageRole.SYSTEM, content=AGENT_SYSTEM_PROMPT),
        Message(role=MessageRole.USER, content=arena.main_question),
    )
