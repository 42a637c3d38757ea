"""The asks of stage ``goals``, before they are made: those for the words of users."""

from __future__ import annotations

from astra.estimate.asks import AskForm, ExpectedAsks, counted
from astra.worlds.asks import WORDINGS, WordingsReply
from astra.worlds.goal_config import GoalsConfig, WordingsBy

TURNS_BYTES, WORDINGS_BYTES = 2_200, 3_600
"""The turns of a user as an ask shows them, and four wordings of each."""


def wording_asks(config: GoalsConfig) -> list[ExpectedAsks]:
    """The asks of stage ``goals``: one a goal where a teacher words the user's turns."""
    if config.wordings is not WordingsBy.TEACHER:
        return []
    goals = counted(sum(config.instances.values()))
    form = AskForm(WORDINGS, WordingsReply, WORDINGS_BYTES)
    return [form.asked("teacher", config.teacher, goals, TURNS_BYTES)]
