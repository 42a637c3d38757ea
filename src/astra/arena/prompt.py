"""The first messages of an arena's episode."""

from __future__ import annotations

from astra.agent.prompt import AGENT_SYSTEM_PROMPT
from astra.arena.worlds import base_of
from astra.records.environment import Arena
from astra.records.message import Message, MessageRole


def initial_messages(arena: Arena) -> tuple[Message, Message]:
    """The system prompt that every track shows, or the policy of the world, then the question."""
    system = base_of(arena).world.policy if arena.world_id else AGENT_SYSTEM_PROMPT
    return (
        Message(role=MessageRole.SYSTEM, content=system),
        Message(role=MessageRole.USER, content=arena.main_question),
    )
