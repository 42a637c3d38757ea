"""Conversations: which tasks become one, what their users want, the loop of user and agent.

A conversation starts with its task's question. The user of a task that lacks a value knows the
value and tells it when asked; other users ask for a second task of the same server once the
first is dealt with.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from astra.agent.episode import EpisodeLimits
from astra.agent.loop import Transcript, run_episode
from astra.agent.protocols import Env, Policy
from astra.llm.protocol import ParseError, ProviderError
from astra.records.base import content_id
from astra.records.graph import ArgumentOrigin
from astra.records.message import Message, MessageRole
from astra.records.task import Task, TaskKind
from astra.records.trajectory import StopReason
from astra.trajectories.agenda import Agenda
from astra.trajectories.config import ConversationsConfig
from astra.trajectories.results import scalar_text
from astra.trajectories.user import Goal, SimulatedUser


@dataclass(frozen=True)
class Script:
    """What one episode is about."""

    tasks: tuple[Task, ...]
    """The task to carry out after each user message."""
    goals: tuple[Goal, ...] = ()
    """What the simulated user wants; empty: the user says nothing after the question."""

    @property
    def follow_ups(self) -> tuple[str, ...]:
        """The ids of the further tasks; telling the agent a value it asked for is none."""
        return tuple(task.id for task in self.tasks[1:] if task.id != self.tasks[0].parent_id)


class Scripts:
    """The scripts of all episodes."""

    def __init__(self, agenda: Agenda, config: ConversationsConfig) -> None:
        self._agenda = agenda
        self._config = config

    def of(self, task: Task, key: str) -> Script:
        """The script of the episode named ``key``: with one user message, or a conversation."""
        ticket = int(content_id(["conversation", key]), 16) / 16**16
        if ticket >= self._config.share:
            return Script((task,))
        if task.kind is TaskKind.MISSING_PARAMETER:
            return self._told_when_asked(task)
        return self._followed(task, key)

    def _told_when_asked(self, task: Task) -> Script:
        """The user knows the value that the question leaves out, and tells it when asked."""
        whole = self._agenda.one(task.parent_id) if task.parent_id else None
        facts = _left_out(task, whole) if whole else {}
        if whole is None or not facts:
            return Script((task,))
        return Script((task, whole), (Goal(request=task.question, facts=facts),))

    def _followed(self, task: Task, key: str) -> Script:
        """The user asks for a second task of the same server after the first."""
        family = {task.id, task.parent_id}
        fitting = [
            other
            for other in self._agenda.follow_ups(task.server_id)
            if not family & {other.id, other.parent_id} - {None}
            and other.language == task.language
            and not {step.tool for step in other.plan} & set(task.withheld_tools)
        ]
        if not fitting:
            return Script((task,))
        other = min(fitting, key=lambda task: content_id(["follow-up", key, task.id]))
        goals = (Goal(request=task.question), Goal(request=other.question))
        return Script((task, other), goals)


def _left_out(task: Task, whole: Task) -> dict[str, str]:
    """Parameter -> the value that a task's question leaves out and the ``whole`` task's states."""
    return {
        name: scalar_text(full.arguments[name].value)
        for step, full in zip(task.plan, whole.plan, strict=True)
        for name, source in step.arguments.items()
        if source.origin is ArgumentOrigin.TASK and source.value is None and name in full.arguments
    }


class UserStop(StrEnum):
    """Why a conversation ended on the user's side; all but the first drop the trajectory."""

    SATISFIED = "satisfied"
    GIVES_UP = "gives_up"
    TURN_LIMIT = "turn_limit"  # something was still open after the last message allowed
    UNAVAILABLE = "unavailable"  # the simulator gave no answer
    UNPARSABLE = "unparsable"


@dataclass(frozen=True)
class Conversation:
    """An episode as it ended, on the agent's side and on the user's."""

    transcript: Transcript
    user_stop: UserStop | None = None
    """None where there was no simulated user, or the agent's side ended it."""
    detail: str = ""
    """What the user was told last, what they still wanted to say, or why they said nothing."""


async def converse(
    policy: Policy,
    env: Env,
    opening: Sequence[Message],
    limits: EpisodeLimits,
    timeout_s: float,
    user: SimulatedUser | None,
    max_user_turns: int,
) -> Conversation:
    """Play a conversation until the user stops or the agent's side ends.

    Limits and time hold for the whole conversation. Without a ``user`` it has one user message.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout_s
    whole = await run_episode(policy, env, opening, limits, timeout_s)
    spoken = 1
    while user is not None and whole.stop_reason == StopReason.ANSWERED:
        try:
            reply = await user.reply(whole.messages)
        except ProviderError as error:
            return Conversation(whole, UserStop.UNAVAILABLE, str(error))
        except ParseError as error:
            return Conversation(whole, UserStop.UNPARSABLE, str(error))
        if reply.status != "continue":
            return Conversation(whole, UserStop(reply.status), whole.messages[-1].content)
        if spoken >= max_user_turns:
            return Conversation(whole, UserStop.TURN_LIMIT, reply.message)
        spoken += 1
        message = Message(role=MessageRole.USER, content=reply.message)
        whole = await _continued(policy, env, whole, message, limits, deadline - clock())
    return Conversation(whole)


async def _continued(
    policy: Policy,
    env: Env,
    before: Transcript,
    message: Message,
    limits: EpisodeLimits,
    timeout_s: float,
) -> Transcript:
    """The conversation with the agent's answer to ``message``, within what the limits leave."""
    turns = sum(earlier.role == MessageRole.ASSISTANT for earlier in before.messages)
    remaining = limits.model_copy(
        update={
            "max_turns": limits.max_turns - turns,
            "max_calls": limits.max_calls - len(before.calls),
        }
    )
    if remaining.max_turns <= 0:
        return dataclasses.replace(before, stop_reason=StopReason.MAX_TURNS)
    if remaining.max_calls <= 0:
        return dataclasses.replace(before, stop_reason=StopReason.MAX_CALLS)
    after = await run_episode(policy, env, (*before.messages, message), remaining, timeout_s)
    # The second part counts its turns from 0 again.
    calls = (call.model_copy(update={"turn": call.turn + turns}) for call in after.calls)
    return dataclasses.replace(after, calls=(*before.calls, *calls))
