"""The automaton that plays a goal's user: each act of the agent, limits, and what it may not do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from world_samples import yard

from astra.arena import user as automaton
from astra.arena.acts import MessageReading
from astra.arena.user import ScriptedUser, UserAnswer
from astra.arena.user_expert import ScriptedAgent, converse_by_script
from astra.arena.world_runner import WorldRunner
from astra.records.qa import Answer, AnswerType, QuestionKind
from astra.records.state import Write, WriteAction
from astra.records.trajectory import StopReason
from astra.records.world import (
    AgentAct,
    Change,
    EventKind,
    FactTime,
    GoalOutcome,
    OutcomeKind,
    ReadProof,
    Say,
    TraceEvent,
    UserAct,
    UserAsk,
    UserFact,
    UserScript,
    UserTurn,
    World,
    WorldGoal,
)
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox

A, T = UserAct, FactTime
DAY, LATER = "2026-03-05", "2026-03-09"
EMAIL = "ada@yard.example"
PLAIN = (A.CONFIRM, A.REJECT, A.UNKNOWN, A.NUDGE, A.CLOSE, A.LEAVE)
DONE, DECLINED = GoalOutcome(kind=OutcomeKind.DONE), OutcomeKind.DECLINED
CANCELLED = Write(action=WriteAction.DELETE, table="bookings", where={"booking_id": "bookings-1"})


@pytest.fixture(scope="module")
def world() -> World:
    """The yard, whose tools say what cancelling writes."""
    made = yard()
    gone = Change(action=WriteAction.DELETE, table="bookings", key={"arg": "booking_id"})
    tools = tuple(
        one.model_copy(update={"changes": (gone,)}) if one.tool.name == "cancel_booking" else one
        for one in made.tools
    )
    return made.model_copy(update={"tools": tools})


@pytest.fixture(scope="module")
def runner(world: World) -> Iterator[WorldRunner]:
    limits = SandboxLimits(cpu_s=60)
    with LocalSandbox(limits) as sandbox, WorldRunner(world, sandbox) as opened:
        yield opened


def said(text: str = "Well.") -> TraceEvent:
    return TraceEvent(kind=EventKind.ASSISTANT, text=text)


def call(tool: str, **arguments: Any) -> TraceEvent:
    return TraceEvent(kind=EventKind.CALL, tool=tool, arguments=arguments)


def turn(act: UserAct, text: str, **facts: Any) -> TraceEvent:
    return TraceEvent(kind=EventKind.USER, act=act, text=text, facts=facts)


OPENING = turn(A.OPENING, "Please cancel my booking.", boat_id="boat-2")
CANCEL = call("cancel_booking", booking_id="bookings-1")
NAMED = (ReadProof(table="boats", key="boat-3", column="price"),)
FACTS = (
    UserFact(slot="boat_id", value="boat-2", when=T.OPENING),
    UserFact(slot="day", value=DAY, when=T.ASKED),
    UserFact(slot="own email", value=EMAIL, when=T.ASKED),
)


def worded(act: UserAct, *values: str, **fields: Any) -> UserTurn:
    """A turn with four wordings, each with all values."""
    words = tuple(f"{act} {at}: {' '.join(values)}" for at in range(4))
    return UserTurn(act=act, wordings=words, **fields)


def goal_of(
    *turns: UserTurn, facts: Sequence[UserFact] = (), trace: Sequence[TraceEvent] = (),
    **fields: Any,
) -> WorldGoal:  # fmt: skip
    """The goal to cancel a booking, with a script of these turns and the plain ones."""
    known = (*FACTS, *facts)
    answers = [worded(A.ANSWER, str(one.value), slots=(one.slot,), changed=one.when is T.CHANGE)
               for one in known]  # fmt: skip
    script = UserScript(
        facts=known, turns=(*turns, *answers, *map(worded, PLAIN)), patience=2, most_turns=10
    )
    wanted: dict[str, Any] = {
        "kind": QuestionKind.WRITE, "trace": trace or (OPENING, CANCEL, said("Done.")),
        "effect": (CANCELLED,), "outcome": DONE, **fields,
    }  # fmt: skip
    return WorldGoal(script=script, **wanted)


class Talk:
    """A dialogue in which each message of the agent is read as told."""

    def __init__(
        self, runner: WorldRunner, goal: WorldGoal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._user = ScriptedUser(runner.base.world, goal)
        self._runner, self._monkeypatch = runner, monkeypatch
        runner.reset()
        runner.add(goal.trace[0])

    def calls(self, event: TraceEvent) -> None:
        assert not self._runner.call(event.tool, event.arguments).event.failed

    def says(self, act: AgentAct, *slots: str, **more: Any) -> UserAnswer:
        self._monkeypatch.setattr(
            automaton, "read_message", lambda *_: MessageReading(act, slots, **more)
        )
        self._runner.add(said())
        return self.hears()

    def hears(self) -> UserAnswer:
        reply = self._user.reply(self._runner.trace, self._runner.tables)
        assert reply == self._user.reply(self._runner.trace, self._runner.tables)
        self._runner.add(reply.turn)
        return reply


@pytest.fixture
def talk(runner: WorldRunner, monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda goal: Talk(runner, goal, monkeypatch)


def test_a_goal_without_a_script_has_no_user(world: World) -> None:
    with pytest.raises(ValueError, match="no script"):
        ScriptedUser(world, goal_of().model_copy(update={"script": None}))


def test_what_is_asked_for_is_told_and_nothing_else(talk: Any) -> None:
    one = talk(goal_of())
    first = one.says(AgentAct.ASK, "day")
    assert (first.turn.act, first.turn.facts, first.ends) == (A.ANSWER, {"day": DAY}, None)
    assert DAY in first.turn.text
    assert EMAIL not in first.turn.text
    both = one.says(AgentAct.ASK, "own email", "day").turn
    assert both.facts == {"own email": EMAIL, "day": DAY}


def test_what_the_user_does_not_know(talk: Any) -> None:
    one = talk(goal_of())
    reply = one.says(AgentAct.ASK, unknown=True)
    assert (reply.turn.act, reply.turn.facts) == (A.UNKNOWN, {})
    assert one.says(AgentAct.OFFER).turn.act == A.UNKNOWN


def test_what_is_asked_besides_is_not_passed_over(talk: Any) -> None:
    """How many animals, and on which date is the session?"""
    one = talk(goal_of())
    reply = one.says(AgentAct.ASK, "day", unknown=True).turn
    assert (reply.act, reply.facts) == (A.ANSWER, {"day": DAY})
    assert f"{A.UNKNOWN} " in reply.text


def test_the_same_question_again_is_answered_again_and_uses_up_patience(talk: Any) -> None:
    one = talk(goal_of())
    texts = [one.says(AgentAct.ASK, "day").turn.text for _ in range(3)]
    assert len({*texts}) == 3
    last = one.says(AgentAct.ASK, "day")
    assert (last.turn.act, last.turn.facts, last.ends) == (A.LEAVE, {}, StopReason.USER_LEFT)


def test_what_was_said_at_the_opening_is_told_again(talk: Any) -> None:
    one = talk(goal_of())
    assert one.says(AgentAct.ASK, "boat_id").turn.facts == {"boat_id": "boat-2"}
    assert one.says(AgentAct.OTHER).turn.act == A.NUDGE
    assert one.says(AgentAct.ASK, "boat_id").ends == StopReason.USER_LEFT


@pytest.mark.parametrize("act", [AgentAct.OFFER, AgentAct.ASK])
def test_the_open_row_is_chosen(talk: Any, act: AgentAct) -> None:
    chosen = worded(A.CHOOSE, DAY, slots=("day",))
    reply = talk(goal_of(chosen)).says(act, "day")
    assert (reply.turn.act, reply.turn.facts) == (A.CHOOSE, {"day": DAY})


def test_proposals(talk: Any) -> None:
    one = talk(goal_of())
    assert one.says(AgentAct.PROPOSE, wanted=True).turn.act == A.CONFIRM
    refused = one.says(AgentAct.PROPOSE, wanted=False).turn
    assert (refused.act, refused.facts) == (A.REJECT, {})
    guessed = one.says(AgentAct.PROPOSE, "day", wanted=False).turn
    assert (guessed.act, guessed.facts) == (A.REJECT, {"day": DAY})
    assert DAY in guessed.text
    assert one.says(AgentAct.PROPOSE, "day", wanted=True).turn.act == A.CONFIRM


def test_a_proposal_that_asks_for_something_besides_gets_both(talk: Any) -> None:
    one = talk(goal_of())
    both = one.says(AgentAct.PROPOSE, "day", wanted=True).turn
    assert (both.act, both.facts) == (A.CONFIRM, {"day": DAY})
    assert DAY in both.text
    assert one.says(AgentAct.PROPOSE, "day", wanted=True).turn.facts == {}, "it was told before"


@pytest.mark.parametrize(
    ("act", "more"), [(AgentAct.PROPOSE, {"wanted": False}), (AgentAct.ASK, {"unknown": True})]
)
def test_who_has_all_they_wanted_wants_nothing_besides(
    talk: Any, act: AgentAct, more: dict[str, Any]
) -> None:
    one = talk(goal_of())
    assert one.says(act, **more).turn.act in (A.REJECT, A.UNKNOWN)
    one.calls(CANCEL)
    assert one.says(act, **more).ends == StopReason.ANSWERED


def changing() -> WorldGoal:
    was = UserFact(slot="days", value="first", when=T.OPENING)
    now = UserFact(slot="days", value="second", when=T.CHANGE)
    return goal_of(worded(A.CHANGE, "second", slots=("days",)), facts=(was, now))


def test_a_change_of_mind_comes_with_the_first_proposal_and_holds_from_then_on(talk: Any) -> None:
    one = talk(changing())
    assert one.says(AgentAct.ASK, "days").turn.facts == {"days": "first"}
    changed = one.says(AgentAct.PROPOSE, wanted=True).turn
    assert (changed.act, changed.facts) == (A.CHANGE, {"days": "second"})
    assert one.says(AgentAct.PROPOSE, wanted=True).turn.act == A.CONFIRM
    again = one.says(AgentAct.ASK, "days").turn
    assert (again.act, again.facts) == (A.ANSWER, {"days": "second"})
    assert "second" in again.text


def test_a_tool_comes_once_when_the_agent_says_that_it_has_none(talk: Any) -> None:
    one = talk(goal_of(worded(A.TOOL, adds_tools=("cancel_booking",))))
    assert one.says(AgentAct.OTHER).turn.adds_tools == ()
    assert one.says(AgentAct.REFUSE).turn.adds_tools == ("cancel_booking",)
    assert one.says(AgentAct.REFUSE).turn.act == A.NUDGE


@pytest.mark.parametrize("act", [AgentAct.ASK, AgentAct.OFFER, AgentAct.PROPOSE])
def test_a_tool_comes_where_the_agent_asks_besides_whether_to_close(talk: Any, act: Any) -> None:
    """Unless it asks for what the user has not told yet: that is told first."""
    one = talk(goal_of(worded(A.TOOL, adds_tools=("cancel_booking",))))
    assert one.says(act, "day", refuses=True).turn.facts == {"day": DAY}
    assert one.says(act, "day", refuses=True).turn.adds_tools == ("cancel_booking",)
    assert one.says(act, "day", refuses=True).turn.adds_tools == ()


def test_the_user_closes_when_the_goal_is_reached_and_reported(talk: Any) -> None:
    one = talk(goal_of())
    assert one.says(AgentAct.REPORT).turn.act == A.NUDGE
    one.calls(CANCEL)
    assert one.says(AgentAct.OTHER).turn.act == A.NUDGE
    closed = one.says(AgentAct.REPORT)
    assert (closed.turn.act, closed.turn.facts, closed.ends) == (A.CLOSE, {}, StopReason.ANSWERED)


def test_what_is_to_be_told_has_to_be_told(talk: Any, runner: WorldRunner) -> None:
    price = Say(answer=Answer(type=AnswerType.NUMBER, value=37.5), read=NAMED)
    one = talk(goal_of(effect=(), say=(price,)))
    one.calls(call("list_boats"))
    assert one.says(AgentAct.REPORT).turn.act == A.NUDGE
    runner.add(said("The price of boat-3 is 37.50."))
    assert one.says(AgentAct.REPORT).ends == StopReason.ANSWERED


@pytest.mark.parametrize("act", [AgentAct.REFUSE, AgentAct.REPORT])
def test_a_request_that_is_declined_ends_with_its_row(talk: Any, act: AgentAct) -> None:
    outcome = GoalOutcome(kind=DECLINED, reason="tier_too_low")
    right, wrong = ("tier_too_low", StopReason.ANSWERED), ("not_found", StopReason.USER_LEFT)
    for reason, ends in (right, wrong):
        one = talk(goal_of(effect=(), outcome=outcome))
        assert one.says(act).turn.act == A.NUDGE
        one.calls(call("decline_request", reason=reason))
        assert one.says(act).ends == ends


@pytest.mark.parametrize("act", [AgentAct.REFUSE, AgentAct.REPORT, AgentAct.ASK])
def test_who_is_declined_what_could_be_done_leaves(talk: Any, act: AgentAct) -> None:
    """No tool is brought for a request that has been declined, and nothing is asked for."""
    one = talk(goal_of(worded(A.TOOL, adds_tools=("cancel_booking",))))
    one.calls(call("decline_request", reason="not_found"))
    left = one.says(act)
    assert (left.turn.act, left.turn.adds_tools) == (A.LEAVE, ())
    assert left.ends == StopReason.USER_LEFT


def successive() -> WorldGoal:
    """First what a boat costs is wanted, then that a booking is cancelled."""
    ask = UserAsk(at=0, text="What is the price of boat-3?", cell=NAMED[0])
    opening = turn(A.OPENING, "What is the price of boat-3?")
    further = turn(A.REQUEST, "Also, cancel bookings-1.", booking_id="bookings-1")
    wish = UserFact(slot="booking_id", value="bookings-1", when=T.REQUEST)
    told = said("The price of boat-3 is 37.50.")
    say = Say(answer=Answer(type=AnswerType.NUMBER, value=37.5), read=NAMED)
    return goal_of(
        worded(A.REQUEST, "bookings-1", slots=("booking_id",)), facts=(wish,), asks=(ask,),
        trace=(opening, call("list_boats"), told, further, CANCEL, said("Done.")), say=(say,),
    )  # fmt: skip


def test_a_further_wish_comes_when_the_one_before_is_met(talk: Any, runner: WorldRunner) -> None:
    one = talk(successive())
    assert one.says(AgentAct.ASK, "booking_id").turn.act == A.UNKNOWN
    one.calls(call("list_boats"))
    runner.add(said("The price of boat-3 is 37.50."))
    further = one.says(AgentAct.REPORT).turn
    assert (further.act, further.facts) == (A.REQUEST, {"booking_id": "bookings-1"})
    assert one.says(AgentAct.ASK, "booking_id").turn.facts == {"booking_id": "bookings-1"}
    one.calls(CANCEL)
    assert one.says(AgentAct.REPORT).ends == StopReason.ANSWERED


def test_a_wish_that_is_met_before_it_is_uttered_is_none(talk: Any, runner: WorldRunner) -> None:
    """What was asked for so far is not the state with more done than that."""
    one = talk(successive())
    one.calls(call("list_boats"))
    one.calls(CANCEL)
    runner.add(said("The price of boat-3 is 37.50."))
    assert one.says(AgentAct.REPORT).turn.act == A.NUDGE


def test_an_agent_that_says_nothing_is_nudged_whatever_it_said_before(talk: Any) -> None:
    one = talk(goal_of())
    one.says(AgentAct.ASK, "day")
    assert one.hears().turn.act == A.NUDGE


def test_turns_are_limited_and_the_last_may_still_close(talk: Any) -> None:
    one = talk(goal_of())
    for _ in range(8):
        assert one.says(AgentAct.PROPOSE, wanted=True).turn.act == A.CONFIRM
    assert one.says(AgentAct.PROPOSE, wanted=True).ends == StopReason.USER_LEFT
    one = talk(goal_of())
    for _ in range(8):
        one.says(AgentAct.PROPOSE, wanted=True)
    one.calls(CANCEL)
    assert one.says(AgentAct.REPORT).ends == StopReason.ANSWERED


def test_words_differ_between_goals_not_between_dialogues(talk: Any) -> None:
    goals = [goal_of(must_read=NAMED * at) for at in range(12)]
    texts = [talk(goal).says(AgentAct.OTHER).turn.text for goal in goals]
    assert [talk(goal).says(AgentAct.OTHER).turn.text for goal in goals] == texts
    assert len({*texts}) > 1


# The agent by rule -------------------------------------------------------------------------------


def test_the_expert_hears_what_the_user_says(runner: WorldRunner) -> None:
    goal = successive()
    played = converse_by_script(runner, goal, ScriptedUser(runner.base.world, goal))
    acts = [event.act for event in played.trace if event.kind == EventKind.USER]
    assert acts == [A.OPENING, A.REQUEST, A.CLOSE]
    assert played.verdict.state
    assert played.verdict.said
    assert played.ends == StopReason.ANSWERED


def test_an_agent_that_is_lost_says_its_last_words_again() -> None:
    goal = successive()
    expert = ScriptedAgent(goal.trace)
    (look, told) = expert.opened()
    assert look.calls[0][0] == "list_boats"
    assert told.text == "The price of boat-3 is 37.50."
    assert not told.calls
    assert expert.heard(turn(A.NUDGE, "Well?")) == [told]
    more = turn(A.REQUEST, "Cancel it.", booking_id="bookings-1", boat_id="boat-2")
    assert [one.text for one in expert.heard(more)] == ["", "Done."]
    assert [one.text for one in expert.heard(more)] == ["Done."]


def test_a_tool_that_is_withheld_fails_until_the_user_brings_it(runner: WorldRunner) -> None:
    goal = goal_of(worded(A.TOOL, adds_tools=("cancel_booking",)), withheld=("cancel_booking",))
    brought = turn(A.TOOL, "Here.").model_copy(update={"adds_tools": ("cancel_booking",)})
    world = runner.base.world
    for events, success in (
        ((OPENING, CANCEL, said("All done.")), False),
        ((OPENING, said("I have no tool for that."), brought, CANCEL, said("All done.")), True),
    ):
        played = converse_by_script(runner, goal, ScriptedUser(world, goal), events)
        assert played.verdict.state is success
        assert (played.ends == StopReason.ANSWERED) is success
        assert any(event.failed for event in played.trace) is not success
