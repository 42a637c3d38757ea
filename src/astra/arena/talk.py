"""The user's part in an episode: how it goes on with what they answer, and figures of the talk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from astra.agent.episode import Episode
from astra.agent.thoughts import split_thought
from astra.arena.env import ArenaEnv
from astra.arena.prompt import user_message
from astra.arena.statements import states
from astra.arena.verdict import GoalVerdict
from astra.records.message import Message
from astra.records.qa import Answer, AnswerType
from astra.records.trajectory import StopReason
from astra.records.world import EventKind, FactTime, TraceEvent, UserAct, UserScript, WorldGoal

_TELLS = (UserAct.ANSWER, UserAct.CHOOSE)
"""Acts that answer a question with what was held back."""
_ASKED = (*_TELLS, UserAct.CONFIRM, UserAct.REJECT)
"""Acts that may tell it: naming a value in a proposal asks for it too."""


def hear_user(env: ArenaEnv, episode: Episode) -> Message | None:
    """Let the arena's user, if it has one, answer the message without calls that ``episode`` was
    offered last; returns what they say, None where the episode is over.

    Their last words, with which they end it, stand in the trace alone: nobody reads them any more.
    Raises AstraError where the user fails; such an episode is StopReason.INFRA.
    """
    reply = env.reply()
    if reply is None:
        return None
    if reply.ends is not None:
        episode.stop_reason = reply.ends
        return None
    message = user_message(reply.turn, env.tools)
    episode.converse(message, env.tools)
    return message


class ArenaUser:
    """The user of an arena as ``run_episode`` takes one (``agent.protocols.Respondent``). Where the
    arena has none, the first message without a call is the last."""

    def __init__(self, env: ArenaEnv) -> None:
        self._env = env

    def listen(self, message: Message) -> None:
        """Note what the agent says, without its thoughts."""
        self._env.say(split_thought(message.content)[1])

    async def respond(self) -> Message | StopReason:
        """Ask the user in a thread: one who is a model takes a while."""
        reply = await asyncio.to_thread(self._env.reply)
        if reply is None:
            return StopReason.ANSWERED
        return reply.ends or user_message(reply.turn, self._env.tools)


# Figures --------------------------------------------------------------------------------------


def talk_figures(
    goal: WorldGoal, trace: Sequence[TraceEvent], verdict: GoalVerdict
) -> dict[str, float]:
    """Figures of one conversation; empty where the goal has no user who talks.

    ``user_turns``: turns of the user, the opening included. ``questions_per_needed_fact``: of the
    facts that the goal's own trace has to ask for, the share that was asked for; left out where
    there are none. ``unneeded_questions``: those that told none of these for the first time.
    ``nudges`` and ``rejections``: replies to what led nowhere and to proposals that were wrong.
    ``user_left``: whether the user gave up. ``early_end``: whether they were content though rows
    and outcome were not the goal's. ``leaks``: facts that their words gave away before they were
    told. The last two are faults of the user.
    """
    if goal.script is None:
        return {}
    turns = [event for event in trace if event.kind == EventKind.USER]
    needed = frozenset(_told(goal.trace, _TELLS))
    asked = frozenset(_told(turns, _ASKED)) & needed
    closed = turns[-1].act == UserAct.CLOSE and not (verdict.state and verdict.outcome)
    figures = {
        "user_turns": float(len(turns)),
        "unneeded_questions": float(_unneeded(turns, needed)),
        "nudges": float(sum(turn.act == UserAct.NUDGE for turn in turns)),
        "rejections": float(sum(turn.act == UserAct.REJECT for turn in turns)),
        "user_left": float(turns[-1].act == UserAct.LEAVE),
        "early_end": float(closed),
        "leaks": float(len(leaked(goal.script, turns))),
    }
    if needed:
        figures["questions_per_needed_fact"] = len(asked) / len(needed)
    return figures


def _told(events: Sequence[TraceEvent], acts: Sequence[UserAct]) -> Iterator[str]:
    """The slots that turns of some acts disclose."""
    return (slot for event in events if event.act in acts for slot in event.facts)


def _unneeded(turns: Sequence[TraceEvent], needed: frozenset[str]) -> int:
    """Questions that told nothing needed which was not told before."""
    told: set[str] = set()
    count = 0
    for turn in turns:
        new = (turn.facts.keys() & needed) - told
        count += turn.act in (*_TELLS, UserAct.UNKNOWN) and not new
        told |= turn.facts.keys()
    return count


def leaked(script: UserScript, turns: Sequence[TraceEvent]) -> list[str]:
    """The slots of facts whose values stand in the words of a turn of the user before any turn
    disclosed them, each once. Values that an earlier turn told for another slot are no secret."""
    found: list[str] = []
    told: set[str] = set()
    known: list[Any] = [fact.value for fact in script.facts if fact.when == FactTime.OPENING]
    for turn in turns:
        told |= turn.facts.keys()
        known += turn.facts.values()
        for fact in script.facts:
            hidden = fact.when != FactTime.OPENING and fact.slot not in (*told, *found)
            if hidden and fact.value not in known and _stands_in(fact.value, turn.text):
                found.append(fact.slot)
    return found


def _stands_in(value: Any, text: str) -> bool:
    """Whether a text states a value; of truth values and of nothing, no text does."""
    if isinstance(value, bool) or value is None:
        return False
    if isinstance(value, int | float):
        return states(Answer(type=AnswerType.NUMBER, value=value), text)
    return states(Answer(type=AnswerType.STRING, value=str(value)), text)
