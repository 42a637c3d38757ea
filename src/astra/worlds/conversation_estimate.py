"""The agent's turns of stage ``conversations``, before they are made."""

from __future__ import annotations

from astra.estimate.asks import Amount, ExpectedAsks, expected
from astra.worlds.conversation_config import PlayedGoalsConfig

TURNS, PROMPT_BYTES, TURN_BYTES = 5.4, 11_400, 300
"""The agent's turns in a conversation, and what it reads for one: policy, documents, and half of
the messages (measured in full worlds with the scripted agent); what it writes is a guess."""


def conversation_asks(config: PlayedGoalsConfig, goals: Amount) -> list[ExpectedAsks]:
    """The agent's turns in the conversations of so many goals. The most are the limits."""
    turns = goals.times(config.samples * TURNS, config.samples * config.limits.max_turns)
    return [expected("teacher", config.teacher, "an agent's turn", turns, PROMPT_BYTES, TURN_BYTES)]
