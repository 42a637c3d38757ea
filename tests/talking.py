"""A goal whose user talks, an agent that reaches it, and users who fail, for tests of episodes."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "arena"))
from world_samples import yard

from astra.agent.toolcalls import render_call
from astra.arena import env
from astra.arena.user import UserAnswer
from astra.arena.world_scripts import agent_turns
from astra.arena.worlds import resolve, world_texts
from astra.errors import AstraError
from astra.records.environment import Arena
from astra.records.qa import Answer, AnswerType, QuestionKind, Scenario
from astra.records.state import Tables, Write, WriteAction
from astra.records.trajectory import StopReason
from astra.records.world import (
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

WORLD = yard(rules=())
DAY = "2026-03-05"


def user(act: UserAct, text: str, **more: object) -> TraceEvent:
    return TraceEvent.model_validate({"kind": EventKind.USER, "act": act, "text": text, **more})


def said(text: str) -> TraceEvent:
    return TraceEvent(kind=EventKind.ASSISTANT, text=text)


def called(tool: str, **arguments: object) -> TraceEvent:
    return TraceEvent(kind=EventKind.CALL, tool=tool, arguments=arguments)


OPENING = user(UserAct.OPENING, "Book boat-1 for ada@yard.example.")
ANSWER = user(UserAct.ANSWER, f"On {DAY}.", facts={"day": DAY})
TOOL = user(UserAct.TOOL, "There is a new tool for you now.", adds_tools=("book_boat",))
CLOSE = user(UserAct.CLOSE, "Thank you, goodbye.")
LEAVE = user(UserAct.LEAVE, "This leads nowhere.")
NUDGE = user(UserAct.NUDGE, "Please go on.")
TRACE = (
    OPENING,
    said("For which day?"),
    ANSWER,
    called("find_person", email="ada@yard.example"),
    said("I am sorry, I have no tool for that."),
    TOOL,
    called("book_boat", person_id="p1", boat_id="boat-1", day=DAY),
    said("All of that is done."),
)
SCRIPT = UserScript(
    facts=(UserFact(slot="day", value=DAY, when=FactTime.ASKED),),
    turns=(
        UserTurn(act=UserAct.ANSWER, slots=("day",), wordings=(ANSWER.text,)),
        UserTurn(act=UserAct.TOOL, wordings=(TOOL.text,), adds_tools=("book_boat",)),
        *(UserTurn(act=act, wordings=("Well.",)) for act in (
            UserAct.CONFIRM, UserAct.REJECT, UserAct.UNKNOWN, UserAct.NUDGE, UserAct.CLOSE,
            UserAct.LEAVE)),
    ),
    patience=2,
    most_turns=10,
)  # fmt: skip
GOAL = WorldGoal(
    kind=QuestionKind.WRITE, needs_user=True, trace=TRACE, withheld=("book_boat",), script=SCRIPT,
    effect=(
        Write(action=WriteAction.UPDATE, table="boats", where={"boat_id": "boat-1"},
              values={"free": False, "log": ["2026-01-01", DAY]}),
        Write(action=WriteAction.INSERT, table="bookings",
              values={"person_id": "p1", "boat_id": "boat-1", "day": DAY}),
    ),
    outcome=GoalOutcome(kind=OutcomeKind.DONE),
)  # fmt: skip


def talking_arena(goal: WorldGoal = GOAL, world: World = WORLD) -> Arena:
    arena = Arena(
        qa_id="qa", split=world.split, domain=world.domain, language="en", source="worlds",
        kind=goal.kind, scenario=Scenario.SINGLE_HOP, hops=1, main_question=goal.trace[0].text,
        final_answer=Answer(type=AnswerType.STRING, value="done"), tools=(), steps=(), entities=(),
        composition="c", world_id=world.id, goal=goal.model_dump_json(),
    )  # fmt: skip
    return resolve(arena, world_texts([world]))


def spoken(events: Sequence[TraceEvent] = TRACE) -> list[str]:
    """What an agent writes, turn by turn."""
    return [
        "\n".join(
            filter(None, [turn.text, *(render_call(n, json.dumps(a)) for n, a in turn.calls)])
        )
        for turn in agent_turns(events)
    ]


class ByTrace:
    """A user who says what the goal's trace has next, whatever the agent says; then they close."""

    def __init__(self, world: World, goal: WorldGoal) -> None:
        self._own = [one for one in goal.trace if one.kind == EventKind.USER]

    def reply(self, trace: Sequence[TraceEvent], rows: Tables) -> UserAnswer:
        assert trace[-1].kind == EventKind.ASSISTANT, (
            "the agent has said something, if only nothing"
        )
        said = sum(one.kind == EventKind.USER for one in trace)
        if said < len(self._own):
            return UserAnswer(self._own[said])
        return UserAnswer(CLOSE, StopReason.ANSWERED)


class Leaves(ByTrace):
    """A user whose patience is worn out by one nudge."""

    def reply(self, trace: Sequence[TraceEvent], rows: Tables) -> UserAnswer:
        if trace[-2].act == UserAct.NUDGE:
            return UserAnswer(LEAVE, StopReason.USER_LEFT)
        return UserAnswer(NUDGE)


class Fails(ByTrace):
    """A user whose second answer fails."""

    def reply(self, trace: Sequence[TraceEvent], rows: Tables) -> UserAnswer:
        if sum(one.kind == EventKind.USER for one in trace) > 1:
            raise AstraError("the model of the user is gone")
        return super().reply(trace, rows)


class Silent(ByTrace):
    """A user who opens their mouth and says nothing."""

    def reply(self, trace: Sequence[TraceEvent], rows: Tables) -> UserAnswer:
        return UserAnswer(user(UserAct.NUDGE, " "))


def users_are(patch: pytest.MonkeyPatch, kind: type[ByTrace]) -> None:
    """Have environments opened from now on ask users of this kind."""
    patch.setattr(env, "ScriptedUser", kind)
