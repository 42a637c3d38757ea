"""Conversations: which tasks become one, what their users want, the loop of user and agent.

A conversation starts with its task's question. The user of a task that lacks a value knows the
value and tells it when asked; other users ask for a second thing once the first is dealt with:
another task that shares a person or thing with theirs, or a wish that the user's model writes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from astra.agent.episode import EpisodeLimits
from astra.agent.loop import Transcript, run_episode
from astra.agent.protocols import Env, Policy
from astra.llm.protocol import ParseError, ProviderError
from astra.llm.served import ServedLimit
from astra.records.base import content_id
from astra.records.graph import ArgumentOrigin
from astra.records.message import Message, MessageRole
from astra.records.task import Task, TaskKind
from astra.records.tool import ToolServer
from astra.records.trajectory import StopReason
from astra.trajectories.agenda import Agenda
from astra.trajectories.config import TrajectoriesConfig
from astra.trajectories.follow_up import SOLVABLE, paired
from astra.trajectories.results import scalar_text
from astra.trajectories.user import Goal, SimulatedUser

OPENING = (*SOLVABLE, TaskKind.MISSING_FUNCTION)
"""The kinds whose users may ask for a second thing: they have named a person or thing."""
Servers = Callable[[str], ToolServer | None]
"""The server of an id, if there is one."""


@dataclass(frozen=True)
class Script:
    """What one episode is about."""

    tasks: tuple[Task, ...]
    """The task to carry out after each user message, as far as they are tasks."""
    goals: tuple[Goal, ...] = ()
    """What the simulated user wants; empty: the user says nothing after the question."""
    wishes: bool = False
    """Whether the user's model is still to write what they want after ``goals``."""

    @property
    def follow_ups(self) -> tuple[str, ...]:
        """The ids of the further tasks; telling the agent a value it asked for is none."""
        return tuple(task.id for task in self.tasks[1:] if task.id != self.tasks[0].parent_id)


class Scripts:
    """The scripts of all episodes; whether a task is a conversation holds for all its episodes.

    With models as agent and user a second wish is written for the conversation. An agent by rules
    needs a plan, and a user by rules writes nothing: then the second goal is another task, which
    is asked for there and begins no episode of its own.
    """

    def __init__(self, agenda: Agenda, servers: Servers, config: TrajectoriesConfig) -> None:
        self._agenda = agenda
        self._servers = servers
        self._share = config.conversations.share
        self._seed = config.seed
        self._written = config.agent.backend == config.user.backend == "openai"
        self._paired: set[str] = set()
        """The servers whose tasks the agenda holds in pairs."""

    def of(self, task: Task) -> Script:
        """The script of a task's episodes: with one user message, or a conversation."""
        if not self._drawn(task):
            return Script((task,))
        if task.kind is TaskKind.MISSING_PARAMETER:
            return self._told_when_asked(task)
        if task.kind not in OPENING:
            return Script((task,))
        if self._written:
            return Script((task,), (Goal(request=task.question),), wishes=True)
        self._pair(task.server_id)
        other = self._agenda.after(task.id)
        if other is None:
            return Script((task,))
        return Script((task, other), (Goal(request=task.question), Goal(request=other.question)))

    def asked_later(self, task: Task) -> bool:
        """Whether the task is asked for within another one's conversation, and not on its own."""
        if self._share == 0 or self._written:
            return False
        self._pair(task.server_id)
        return self._agenda.comes_later(task.id)

    def planned(self, task: Task) -> Task:
        """The task, or the one it came from where that alone has a plan: both speak of the same."""
        parent = self._agenda.one(task.parent_id) if task.parent_id and not task.plan else None
        return parent or task

    def questions_beside(self, task: Task, count: int) -> list[str]:
        """Questions of other tasks of the server, ``count`` at most, drawn by a hash."""
        others = self._agenda.questions(task.server_id) - {task.question}
        return sorted(others, key=lambda text: content_id(["beside", task.id, text]))[:count]

    def _drawn(self, task: Task) -> bool:
        return int(content_id(["conversation", self._seed, task.id]), 16) / 16**16 < self._share

    def _opens(self, task: Task) -> bool:
        """Whether the user of a task is to ask for a second thing."""
        return task.kind in OPENING and self._drawn(task)

    def _pair(self, server_id: str) -> None:
        if server_id in self._paired:
            return
        self._paired.add(server_id)
        server = self._servers(server_id)
        if server is not None:
            tasks = self._agenda.of_server(server_id)
            self._agenda.pair(paired(tasks, server, self._opens))

    def _told_when_asked(self, task: Task) -> Script:
        """The user knows the value that the question leaves out, and tells it when asked."""
        whole = self._agenda.one(task.parent_id) if task.parent_id else None
        facts = _left_out(task, whole) if whole else {}
        if whole is None or not facts:
            return Script((task,))
        return Script((task, whole), (Goal(request=task.question, facts=facts),))


def _left_out(task: Task, whole: Task) -> dict[str, str]:
    """Parameter -> the value that a task's question leaves out and the ``whole`` task's states."""
    return {
        name: full.arguments[name].said or scalar_text(full.arguments[name].value)
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

    Limits hold for the whole conversation, ``timeout_s`` of served time for the agent's answer to
    each user message. Without a ``user`` there is one.
    """
    whole = await run_episode(policy, env, opening, limits, ServedLimit(timeout_s))
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
        whole = await _continued(policy, env, whole, message, limits, timeout_s)
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
    messages = (*before.messages, message)
    after = await run_episode(policy, env, messages, remaining, ServedLimit(timeout_s))
    # The second part counts its turns from 0 again.
    calls = (call.model_copy(update={"turn": call.turn + turns}) for call in after.calls)
    return dataclasses.replace(after, calls=(*before.calls, *calls))
