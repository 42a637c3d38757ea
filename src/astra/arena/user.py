"""The user of a goal as a finite automaton: rules decide, the words were made beforehand.

The automaton has no state of its own: what it has disclosed, agreed to and lost patience with is
read from the trace. So the same trace gets the same reply, whoever plays it, and all rollouts of a
group meet the same user. It ends a conversation only by what happened: the goal is reached and
reported, or patience or turns are used up. It cannot leak, invent or leave early.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from astra.records.state import Tables
from astra.records.trajectory import StopReason
from astra.records.world import EventKind, TraceEvent, UserAct, World, WorldGoal


class UserReply(NamedTuple):
    """What the user says to the agent's last message."""

    turn: TraceEvent
    """A USER event: its act, words, the facts that it discloses, the tools that it brings."""
    ends: StopReason | None = None
    """ANSWERED where the user closes the conversation, USER_LEFT where they give up; None: the
    agent has the word."""


class User(Protocol):
    """Who answers the messages of an agent in a world."""

    def reply(self, trace: Sequence[TraceEvent], rows: Tables) -> UserReply:
        """The answer to what the agent said last. ``trace``: what happened so far, that message
        included; ``rows``: the world's tables now. Raises AstraError where the user fails; such an
        episode says nothing about the agent."""
        ...


class ScriptedUser:
    """The user that a goal's script describes. Raises ValueError where the goal has none."""

    def __init__(self, world: World, goal: WorldGoal) -> None:
        if goal.script is None:
            raise ValueError("the goal has no script of a user")
        self._world, self._goal = world, goal

    def reply(self, trace: Sequence[TraceEvent], rows: Tables) -> UserReply:
        """STUB that follows the goal's trace turn by turn; the automaton takes its place."""
        own = [event for event in self._goal.trace if event.kind == EventKind.USER]
        said = sum(event.kind == EventKind.USER for event in trace)
        if said < len(own):
            return UserReply(own[said])
        turn = TraceEvent(kind=EventKind.USER, act=UserAct.CLOSE, text="Thank you, goodbye.")
        return UserReply(turn, StopReason.ANSWERED)
