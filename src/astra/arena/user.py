"""The user of a goal as a finite automaton: rules decide, the words were made beforehand.

The automaton has no state of its own: what it has disclosed, agreed to and lost patience with is
read from the trace. So the same trace gets the same reply, whoever plays it, and all rollouts of a
group meet the same user. It ends a conversation only by what happened: the goal is reached and
reported, the request was ended otherwise than it was to, or patience or turns are used up. It
cannot leak, invent or leave early.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

from astra.arena.acts import MessageReading, read_message
from astra.arena.effects import net_writes
from astra.arena.verdict import judge
from astra.records.base import content_id
from astra.records.state import Tables
from astra.records.trajectory import StopReason
from astra.records.world import (
    OUTCOMES,
    AgentAct,
    EventKind,
    FactTime,
    GoalOutcome,
    OutcomeKind,
    TraceEvent,
    UserAct,
    UserFact,
    UserScript,
    UserTurn,
    World,
    WorldGoal,
)

_A = UserAct
_IDLE = frozenset({_A.NUDGE, _A.UNKNOWN, _A.REJECT})
"""Replies to what leads nowhere; so is an answer that was given before."""


_SILENT = MessageReading(AgentAct.OTHER)
"""An agent that has said nothing since the user's last turn."""


class UserAnswer(NamedTuple):
    """What the user says to the agent's last message."""

    turn: TraceEvent
    """A USER event: its act, words, the facts that it discloses, the tools that it brings."""
    ends: StopReason | None = None
    """ANSWERED where the user closes the conversation, USER_LEFT where they give up; None: the
    agent has the word."""


class User(Protocol):
    """Who answers the messages of an agent in a world."""

    def reply(self, trace: Sequence[TraceEvent], rows: Tables) -> UserAnswer:
        """The answer to what the agent said last. ``trace``: what happened so far, that message
        included; ``rows``: the world's tables now. Raises AstraError where the user fails; such an
        episode says nothing about the agent."""
        ...


class ScriptedUser:
    """The user that a goal's script describes. Raises ValueError where the goal has none."""

    def __init__(self, world: World, goal: WorldGoal) -> None:
        if goal.script is None:
            raise ValueError("the goal has no script of a user")
        self._world, self._goal, self._script = world, goal, goal.script

    def reply(self, trace: Sequence[TraceEvent], rows: Tables) -> UserAnswer:
        """The answer by the rules of the module; a pure function of the trace and the rows."""
        heard = _Heard(self._script, trace)
        if self._is_lost(heard, rows):
            return UserAnswer(self._said([self._turn(_A.LEAVE)], heard), StopReason.USER_LEFT)
        said = any(event.kind == EventKind.ASSISTANT for event in heard.since)
        reading = read_message(self._world, self._goal, trace) if said else _SILENT
        turns = self._chosen(reading, heard, rows)
        act = turns[0].act
        if act == _A.CLOSE:
            return UserAnswer(self._said(turns, heard), StopReason.ANSWERED)
        idle = act in _IDLE or heard.repeats(act, [slot for turn in turns for slot in turn.slots])
        if (idle and heard.idle >= self._script.patience) or (
            len(heard.turns) >= self._script.most_turns - 1
        ):
            return UserAnswer(self._said([self._turn(_A.LEAVE)], heard), StopReason.USER_LEFT)
        return UserAnswer(self._said(turns, heard))

    def _chosen(self, reading: MessageReading, heard: _Heard, rows: Tables) -> list[UserTurn]:
        """The turns to say together; the first one's act is that of the reply."""
        answers = [*self._answers(reading.slots, heard)]
        # "I cannot do that. Shall I close the request?" asks for nothing that is still to be told.
        if reading.declines and not any(map(heard.is_new, answers)):
            tool = self._pending(_A.TOOL, heard)
            if tool is not None:
                return [tool]
        match reading.act:
            case AgentAct.PROPOSE if pending := self._pending(_A.CHANGE, heard):
                return [pending]
            case AgentAct.PROPOSE if reading.wanted:
                return [self._turn(_A.CONFIRM), *(one for one in answers if heard.is_new(one))]
            case AgentAct.OFFER | AgentAct.ASK if answers:
                return [*answers, *([self._turn(_A.UNKNOWN)] if reading.unknown else [])]
            case AgentAct.OTHER:
                return [self._turn(_A.NUDGE)]
            case act if self._is_reached(heard, rows):
                # Who has all they wanted wants none of what is proposed or asked besides.
                further = self._requests[heard.requests : heard.requests + 1]
                if further and act == AgentAct.REFUSE:
                    return [self._turn(_A.NUDGE)]
                return [*further] or [self._turn(_A.CLOSE)]
            case AgentAct.PROPOSE:
                return [self._turn(_A.REJECT), *answers]
            case AgentAct.OFFER | AgentAct.ASK:
                return [self._turn(_A.UNKNOWN)]
            case _:
                return [self._turn(_A.NUDGE)]

    def _answers(self, slots: Iterable[str], heard: _Heard) -> Iterator[UserTurn]:
        """What gives the facts that are asked for, as they are now, each once."""
        said: list[UserTurn] = []
        for slot in slots:
            turn = self._giving(slot, heard)
            if turn is not None and turn not in said:
                said.append(turn)
        # A choice gives its reply the act, so it comes first.
        yield from sorted(said, key=lambda turn: turn.act != _A.CHOOSE)

    def _giving(self, slot: str, heard: _Heard) -> UserTurn | None:
        """The turn that gives a fact; None where the user has none, or none yet."""
        told = [fact for fact in self._script.facts if fact.slot == slot and heard.may_tell(fact)]
        if not told:
            return None
        changed = any(fact.when == FactTime.CHANGE for fact in told)
        for turn in self._script.turns:
            fits = turn.act == _A.ANSWER and turn.changed == changed
            if slot in turn.slots and (turn.act == _A.CHOOSE or fits):
                return turn
        return None

    def _pending(self, act: UserAct, heard: _Heard) -> UserTurn | None:
        """The change of mind or the tool that is still to come."""
        if any(event.act == act for event in heard.turns):
            return None
        return next((turn for turn in self._script.turns if turn.act == act), None)

    def _is_reached(self, heard: _Heard, rows: Tables) -> bool:
        """Whether all that was asked for so far is done and told: before a further wish what the
        goal's own trace has done until then, at the end the whole goal."""
        goal = (*self._parts, self._goal)[heard.requests]
        verdict = judge(self._world, goal, heard.trace, rows)
        return verdict.state and verdict.outcome and verdict.said

    def _is_lost(self, heard: _Heard, rows: Tables) -> bool:
        """Whether the agent has declined or handed over what it was not to, or with another code:
        that is not taken back, and there is nothing left to ask for."""
        if not rows.get(OUTCOMES):
            return False
        reasons = judge(self._world, self._goal, heard.trace, rows).reasons
        return any(reason.startswith("outcome_wrong") for reason in reasons)

    @cached_property
    def _requests(self) -> list[UserTurn]:
        return [turn for turn in self._script.turns if turn.act == _A.REQUEST]

    @cached_property
    def _parts(self) -> list[WorldGoal]:
        """What is wanted before each further wish."""
        goal, writing = self._goal, {tool.tool.name for tool in self._world.tools if tool.writes}
        calls = [(event.tool, event.arguments) for event in goal.trace if event.tool in writing]
        starts = [at for at, event in enumerate(goal.trace) if event.act == _A.REQUEST]
        asked = [[ask.cell for ask in goal.asks if ask.at < start] for start in starts]
        return [
            goal.model_copy(update={
                "effect": net_writes(self._world, calls[: request.after]),
                "say": tuple(say for say in goal.say if any(one in cells for one in say.read)),
                "outcome": GoalOutcome(kind=OutcomeKind.DONE),
            })
            for request, cells in zip(self._requests, asked, strict=True)
        ]  # fmt: skip

    def _turn(self, act: UserAct) -> UserTurn:
        return next(turn for turn in self._script.turns if turn.act == act)

    def _said(self, turns: Sequence[UserTurn], heard: _Heard) -> TraceEvent:
        """Turns in words, as one event."""
        act = turns[0].act
        count = sum(event.act == act for event in heard.turns)
        slots = [slot for turn in turns for slot in turn.slots]
        return TraceEvent(
            kind=EventKind.USER, act=act, text=" ".join(self._words(turn, count) for turn in turns),
            facts={slot: heard.value(slot, act) for slot in slots},
            adds_tools=tuple(name for turn in turns for name in turn.adds_tools),
        )  # fmt: skip

    def _words(self, turn: UserTurn, count: int) -> str:
        """One of a turn's wordings: another each time that the act comes, the same for everyone."""
        drawn = int(content_id([self._name, turn.act, turn.slots]), 16)
        return turn.wordings[(drawn + count) % len(turn.wordings)]

    @cached_property
    def _name(self) -> str:
        return content_id([self._world.id, self._goal.model_dump(mode="json")])


class _Heard:
    """What a trace says of the user so far."""

    def __init__(self, script: UserScript, trace: Sequence[TraceEvent]) -> None:
        self._script, self.trace = script, trace
        last = max((at for at, one in enumerate(trace) if one.kind == EventKind.USER), default=-1)
        self.since = trace[last + 1 :]
        """What happened since the user's last turn."""
        self.turns = [event for event in trace if event.kind == EventKind.USER]
        self._told: set[str] = set()
        self._changed = any(event.act == _A.CHANGE for event in self.turns)
        self.requests = sum(event.act == _A.REQUEST for event in self.turns)
        self.idle = 0
        """Replies so far to what led nowhere."""
        for event in self.turns:
            self.idle += event.act in _IDLE or self.repeats(event.act, event.facts)
            self._told |= {*event.facts}

    def repeats(self, act: UserAct | None, slots: Iterable[str]) -> bool:
        """Whether a reply gives facts, and none that was not told before."""
        return act in (_A.ANSWER, _A.CHOOSE) and self._told >= {*slots}

    def is_new(self, turn: UserTurn) -> bool:
        """Whether a turn gives a fact that was not told before."""
        return not self._told >= {*turn.slots}

    def may_tell(self, fact: UserFact) -> bool:
        """Whether the user has come to a fact: not to that of a wish or a change still to come."""
        if fact.when == FactTime.REQUEST:
            return fact.slot in self._told
        return fact.when != FactTime.CHANGE or self._changed

    def value(self, slot: str, act: UserAct) -> object:
        """The value that a turn of an act discloses for a slot."""
        changed = self._changed or act == _A.CHANGE
        values = {fact.when == FactTime.CHANGE: fact.value for fact in self._script.facts
                  if fact.slot == slot}  # fmt: skip
        return values[True] if changed and True in values else values[False]
