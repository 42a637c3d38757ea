"""The simulated user: knows what they want, sees messages only, and decides when it is over.

After each final message of the agent the user says one thing more, is satisfied, or gives up
(beyond the paper, whose trajectories have one user message).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from astra.agent.prompt import untagged
from astra.llm.protocol import Ask, Teacher
from astra.records.base import Frozen
from astra.records.message import Message, MessageRole
from astra.records.tool import ToolServer

TEMPLATE = "trajectories/user"


class Goal(Frozen):
    """One thing the user wants: how they ask for it, and what they know but do not say unasked."""

    request: str
    facts: dict[str, str] = Field(default_factory=dict[str, str])
    """Parameter -> the value as the user speaks it."""


class UserReply(BaseModel):
    """The user's next move: ``message`` is what they say, empty unless ``status`` is continue."""

    model_config = ConfigDict(extra="forbid")
    status: Literal["continue", "satisfied", "gives_up"]
    message: str

    @model_validator(mode="after")
    def _speaks_or_ends(self) -> Self:
        if (self.status == "continue") != bool(self.message.strip()):
            raise ValueError("message must be given with status continue, and only then")
        return self


class SimulatedUser:
    """The user of one episode, played by a teacher."""

    def __init__(
        self,
        goals: Sequence[Goal],
        server: ToolServer,
        language: str,
        now: str,
        max_turns: int,
        teacher: Teacher,
        sample: int,
    ) -> None:
        self._goals = goals
        self._server = server
        self._language = language
        self._max_turns = max_turns
        self._teacher = teacher
        self._sample = sample
        self._now = now

    async def reply(self, messages: Sequence[Message]) -> UserReply:
        """What the user does after the conversation so far; they see neither calls nor tags.

        Raises ProviderError or ParseError as the teacher does.
        """
        conversation = [
            {"speaker": "user", "text": m.content}
            if m.role == MessageRole.USER
            else {"speaker": "assistant", "text": untagged(m.content)}
            for m in messages
            if m.role == MessageRole.USER or (m.role == MessageRole.ASSISTANT and not m.tool_calls)
        ]
        spoken = sum(turn["speaker"] == "user" for turn in conversation)
        variables: dict[str, Any] = {
            "server": self._server.title or self._server.name,
            "language": self._language,
            "now": self._now,
            "goals": [goal.model_dump(mode="json") for goal in self._goals],
            "conversation": conversation,
            "messages_left": self._max_turns - spoken,
        }
        return await self._teacher.ask(Ask(TEMPLATE, variables, UserReply, self._sample))
