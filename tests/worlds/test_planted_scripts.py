"""Bad scripts of users, each wrong in one way, are refused for that reason; goals are played with
good ones by the scripted expert, and floors with a user do not reach them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from goal_samples import SORTS, Shelf, changed_event, other, place

from astra.arena.user import ScriptedUser
from astra.arena.user_expert import PlayedConversation, converse
from astra.arena.world_scripts import never_asks
from astra.records.qa import QuestionKind
from astra.records.state import Tables
from astra.records.trajectory import StopReason
from astra.records.world import (
    EventKind,
    FactTime,
    TraceEvent,
    UserAct,
    UserFact,
    UserScript,
    UserTurn,
    WorldGoal,
)
from astra.worlds.script_proofs import script_faults
from astra.worlds.turns import rephrased

A = UserAct
Change = Callable[[UserScript, Shelf], UserScript]


def script_of(goal: WorldGoal) -> UserScript:
    assert goal.script is not None
    return goal.script


def set_script(script: UserScript, **fields: Any) -> UserScript:
    return script.model_copy(update=fields)


def with_turn(script: UserScript, act: UserAct, **fields: Any) -> UserScript:
    """The first turn of an act with other fields."""
    at = next(at for at, turn in enumerate(script.turns) if turn.act is act)
    turn = script.turns[at].model_copy(update=fields)
    return set_script(script, turns=(*script.turns[:at], turn, *script.turns[at + 1 :]))


def with_wording(script: UserScript, act: UserAct, text: str) -> UserScript:
    """The first turn of an act with one more way to say it."""
    turn = next(turn for turn in script.turns if turn.act is act)
    return with_turn(script, act, wordings=(*turn.wordings[:5], text))


def without_turn(script: UserScript, right: Callable[[UserTurn], bool]) -> UserScript:
    return set_script(script, turns=tuple(turn for turn in script.turns if not right(turn)))


def doubled(script: UserScript, act: UserAct) -> UserScript:
    turn = next(turn for turn in script.turns if turn.act is act)
    return set_script(script, turns=(*script.turns, turn))


def secret(script: UserScript) -> UserFact:
    """A fact that is held back."""
    return next(fact for fact in script.facts if fact.when is not FactTime.OPENING)


def told_value(script: UserScript, when: FactTime = FactTime.ASKED) -> str:
    return str(next(fact.value for fact in script.facts if fact.when is when))


def with_fact(script: UserScript, at: int, **fields: Any) -> UserScript:
    fact = script.facts[at].model_copy(update=fields)
    return set_script(script, facts=(*script.facts[:at], fact, *script.facts[at + 1 :]))


PLANTED: dict[str, tuple[str, str, Change]] = {
    "a leak in a nudge": ("missing", "wording_leaks", lambda u, s: with_wording(
        u, A.NUDGE, f"Go on, it is {told_value(u)}.")),
    "a leak in what closes": ("missing", "wording_leaks", lambda u, s: with_wording(
        u, A.CLOSE, f"Bye from {told_value(u)}.")),
    "a leak in another answer": ("missing", "wording_leaks", lambda u, s: with_wording(
        u, A.ANSWER, " ".join(str(fact.value) for fact in u.facts))),
    "a leak of the change of mind": ("changes", "wording_leaks", lambda u, s: with_wording(
        u, A.REJECT, f"No, {told_value(u, FactTime.CHANGE).replace('_', ' ')}.")),
    "a leak of the next wish": ("successive", "wording_leaks", lambda u, s: with_wording(
        u, A.CONFIRM, f"Yes, then {told_value(u, FactTime.REQUEST).replace('_', ' ')}.")),
    "an answer without the value": ("missing", "wording_untold", lambda u, s: with_wording(
        u, A.ANSWER, "As I said.")),
    "a choice without the fact": ("choice", "wording_untold", lambda u, s: with_wording(
        u, A.CHOOSE, "The other one.")),
    "a change without the new value": ("changes", "wording_untold", lambda u, s: with_wording(
        u, A.CHANGE, "Wait, I changed my mind.")),
    "a tool's name": ("missing", "wording_names", lambda u, s: with_wording(
        u, A.NUDGE, f"Use {s.view.writing[0].tool.name}.")),
    "a table's name": ("missing", "wording_names", lambda u, s: with_wording(
        u, A.UNKNOWN, "Look at loans.")),
    "a nudge that takes back": ("write", "wording_takes_back", lambda u, s: with_wording(
        u, A.NUDGE, "Forget it.")),
    "a yes that is a no": ("write", "wording_takes_back", lambda u, s: with_wording(
        u, A.CONFIRM, "No, please do.")),
    "one wording": ("write", "few_wordings", lambda u, s: with_turn(
        u, A.NUDGE, wordings=("Well?",))),
    "one wording four times": ("write", "few_wordings", lambda u, s: with_turn(
        u, A.NUDGE, wordings=("Well?",) * 4)),
    "no answer for what is held back": ("missing", "turn_missing", lambda u, s: without_turn(
        u, lambda turn: secret(u).slot in turn.slots)),
    "no choice": ("choice", "turn_missing", lambda u, s: without_turn(
        u, lambda turn: turn.act is A.CHOOSE)),
    "no change of mind": ("changes", "turn_missing", lambda u, s: without_turn(
        u, lambda turn: turn.act is A.CHANGE)),
    "no answer after the change of mind": ("changes", "turn_missing", lambda u, s: without_turn(
        u, lambda turn: turn.changed)),
    "no further wish": ("successive", "turn_missing", lambda u, s: without_turn(
        u, lambda turn: turn.act is A.REQUEST)),
    "no further question": ("questions", "turn_missing", lambda u, s: without_turn(
        u, lambda turn: turn.act is A.REQUEST)),
    "no tool": ("late", "tool_not_brought", lambda u, s: without_turn(
        u, lambda turn: turn.act is A.TOOL)),
    "another tool": ("late", "tool_not_brought", lambda u, s: with_turn(
        u, A.TOOL, adds_tools=("show_copy",))),
    "a tool for one who has none": ("not_offered", "turn_invented", lambda u, s: set_script(
        u, turns=(*u.turns, UserTurn(act=A.TOOL, adds_tools=("show_copy",), wordings=(
            "Here.", "There.", "Take it.", "Look."))))),
    "a wish that nobody has": ("write", "turn_invented", lambda u, s: set_script(
        u, turns=(*u.turns, u.turns[-1].model_copy(update={"act": A.REQUEST})))),
    "nothing to close with": ("write", "turn_missing", lambda u, s: without_turn(
        u, lambda turn: turn.act is A.CLOSE)),
    "two ways to close": ("write", "turn_doubled", lambda u, s: doubled(u, A.CLOSE)),
    "two answers for a fact": ("write", "turn_doubled", lambda u, s: doubled(u, A.ANSWER)),
    "a closing that discloses": ("missing", "turn_discloses", lambda u, s: with_turn(
        u, A.CLOSE, slots=(secret(u).slot,))),
    "a nudge that brings a tool": ("late", "turn_discloses", lambda u, s: with_turn(
        u, A.NUDGE, adds_tools=("show_copy",))),
    "a further wish that gives more": ("successive", "turn_discloses", lambda u, s: with_turn(
        u, A.REQUEST, slots=tuple(fact.slot for fact in u.facts))),
    "an answer of everything": ("missing", "turn_invented", lambda u, s: with_turn(
        u, A.ANSWER, slots=tuple(fact.slot for fact in u.facts))),
    "a fact that is not known": ("missing", "fact_missing", lambda u, s: set_script(
        u, facts=u.facts[:-1])),
    "a fact of another value": ("missing", "fact_invented", lambda u, s: with_fact(
        u, -1 % len(u.facts), value="nobody")),
    "a fact that comes at once": ("missing", "fact_invented", lambda u, s: with_fact(
        u, u.facts.index(secret(u)), when=FactTime.OPENING)),
    "no patience": ("write", "impatient", lambda u, s: set_script(u, patience=0)),
    "too few turns": ("write", "impatient", lambda u, s: set_script(u, most_turns=2)),
}  # fmt: skip


def reasons(shelf: Shelf, goal: WorldGoal) -> list[str]:
    return [fault.reason for fault in script_faults(shelf.view, goal)]


@pytest.mark.parametrize("sort", SORTS)
def test_the_scripts_that_are_spoiled_are_good(shelf: Shelf, sort: str) -> None:
    assert reasons(shelf, shelf.goals[sort]) == []


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_fault_is_found(shelf: Shelf, planted: str) -> None:
    sort, reason, spoil = PLANTED[planted]
    goal = shelf.goals[sort]
    spoiled = spoil(script_of(goal), shelf)
    assert spoiled != goal.script
    assert reason in reasons(shelf, other(goal, script=spoiled))


def test_a_goal_without_a_script_and_an_opening_that_tells_all(shelf: Shelf) -> None:
    goal = shelf.goals["missing"]
    assert reasons(shelf, other(goal, script=None)) == ["no_script"]
    opening = f"{goal.trace[0].text} {secret(script_of(goal)).value}"
    assert reasons(shelf, changed_event(goal, 0, text=opening)) == ["opening_leaks"]


def test_own_data_that_the_finding_tool_takes_is_held_back(shelf: Shelf) -> None:
    facts = {fact.slot: fact for fact in script_of(shelf.goals["write"]).facts}
    own = {f"own {name}" for name in shelf.view.parameters(shelf.view.find.tool.name)}
    assert own <= {*facts}
    assert {facts[slot].when for slot in own} == {FactTime.OPENING, FactTime.ASKED}


# Conversations -----------------------------------------------------------------------------------


def played(
    shelf: Shelf, goal: WorldGoal, events: Sequence[TraceEvent] = ()
) -> PlayedConversation:  # fmt: skip
    def execute(all_of: Sequence[TraceEvent]) -> tuple[Sequence[TraceEvent], Tables]:
        return shelf.executions.run(all_of, goal.withheld)

    user = ScriptedUser(shelf.world, goal)
    return converse(shelf.world, goal, events or goal.trace, user, execute)


@pytest.mark.parametrize("sort", SORTS)
def test_the_expert_reaches_every_sort_of_goal_with_its_user(shelf: Shelf, sort: str) -> None:
    goal = shelf.goals[sort]
    talk = played(shelf, goal)
    assert talk.success, talk.verdict.reasons
    acts = [event.act for event in talk.trace if event.kind == EventKind.USER]
    own = [event.act for event in goal.trace if event.kind == EventKind.USER]
    assert acts == [*own, A.CLOSE]


def test_a_message_that_the_user_does_not_understand_keeps_the_goal_from_its_end(
    shelf: Shelf,
) -> None:
    goal = shelf.goals["missing"]
    asks = place(goal, lambda event: event.text.startswith("Which"))
    talk = played(shelf, changed_event(goal, asks, text="Hm."))
    assert talk.ends == StopReason.USER_LEFT
    assert not talk.verdict.success


def test_declining_at_once_and_after_having_said_so(shelf: Shelf) -> None:
    """A user without a tool for the agent has none to bring."""
    goal = shelf.goals["not_offered"]
    assert goal.kind is QuestionKind.MISSING_TOOL
    first = TraceEvent(kind=EventKind.ASSISTANT, text="I have no tool for that.")
    waits = TraceEvent(kind=EventKind.USER, act=A.NUDGE)
    talk = played(shelf, goal, (goal.trace[0], first, waits, *goal.trace[1:]))
    assert talk.success
    acts = [event.act for event in talk.trace if event.kind == EventKind.USER]
    assert acts == [A.OPENING, A.NUDGE, A.CLOSE]


@pytest.mark.parametrize("sort", ["missing", "choice"])
def test_an_agent_that_never_asks_guesses(shelf: Shelf, sort: str) -> None:
    goal = shelf.goals[sort]
    events = never_asks(shelf.world, goal)
    assert events is not None
    assert not {A.ANSWER, A.CHOOSE} & {event.act for event in events}
    assert len(events) == len(goal.trace) - 2
    calls = [event.arguments for event in events if event.tool]
    if calls != [event.arguments for event in goal.trace if event.tool]:
        assert not played(shelf, goal, events).verdict.success


@pytest.mark.parametrize("sort", ["write", "read", "late", "changes"])
def test_where_nothing_is_asked_for_nothing_is_guessed(shelf: Shelf, sort: str) -> None:
    assert never_asks(shelf.world, shelf.goals[sort]) is None


def test_a_sentence_in_other_words_wishes_for_the_same() -> None:
    assert "Could you pay my fines?" in rephrased("Besides, pay my fines.")
    questions = rephrased("What is the due date of my loan?")
    assert "I want to know the due date of my loan." in questions
    assert rephrased("So what.") == ["So what."]
