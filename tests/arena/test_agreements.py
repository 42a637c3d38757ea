"""What a yes of the user is to: proposals in many words, of the call that follows or of another."""

from __future__ import annotations

import pytest
from world_samples import offer, text, yard

from astra.arena.traces import confirmed
from astra.arena.verdict import broken_rules
from astra.records.world import EventKind, RowChange, ToolRole, TraceEvent, UserAct

DAY = "2026-03-05"
EXTRA = offer("add_extra", "", ToolRole.CREATE, ("bookings",), {}, booking_id=text(),
              item={"type": "string", "enum": ["picnic_basket", "life_vest", "other"]})  # fmt: skip
MOVE = offer("move_booking", "", ToolRole.UPDATE, ("bookings",), {}, booking_id=text(), days={
    "type": "integer"}, reason={"type": "string", "enum": ["illness", "weather", "other"]},
             day=text())  # fmt: skip
BOOKINGS = [{"booking_id": f"bk-{at}", "person_id": "p1", "boat_id": f"boat-{at}", "day": DAY,
             "made": "2026-02-01T09:00:00"} for at in (1, 2)]  # fmt: skip
BASE = yard()
RULES = tuple(
    rule.model_copy(update={"tools": ("move_booking", "add_extra", "cancel_booking")})
    for rule in BASE.rules if rule.id == "confirm"
)  # fmt: skip
WORLD = yard((EXTRA, MOVE), rows={**BASE.rows, "bookings": BOOKINGS}, rules=RULES)


def user(words: str = "Yes, please.", act: UserAct = UserAct.CONFIRM) -> TraceEvent:
    return TraceEvent(kind=EventKind.USER, text=words, act=act)


def agent(words: str) -> TraceEvent:
    return TraceEvent(kind=EventKind.ASSISTANT, text=words)


def call(tool: str, *changes: RowChange, **arguments: object) -> TraceEvent:
    return TraceEvent(kind=EventKind.CALL, tool=tool, arguments=arguments, changes=changes)


OPENING = user("Move my booking bk-1.", UserAct.OPENING)
MOVED = call("move_booking", booking_id="bk-1", days=2, reason="illness", day="2026-03-07")


def is_kept(*trace: TraceEvent) -> bool:
    """Whether the rule that wants a yes is."""
    return not list(broken_rules(WORLD, (OPENING, *trace)))


@pytest.mark.parametrize(
    "words",
    [
        "May I?",
        "I am going to do just that. Do you agree?",
        "I am going to use move_booking with booking id bk-1, days 2, reason illness, day "
        "2026-03-07. Do you agree?",
        "I'll move booking **bk-1** by 2 days to _7 March 2026_. OK?",
        "Shall I move your booking from 2026-03-05 to 7 March 2026?",
        "Your booking of Heron 1 on 2026-03-05: I would move it by 2 days, as you are ill.",
        "I found bk-1 and bk-2. I would move the first by two days. Is that right?",
        "You are ill, so I can move it two days. No other charge is made. Go ahead?",
        "Just to confirm: bk-1, 2 days later, illness.",
        "We'd move it to the day after tomorrow, from 5 March 2026. Fine?",
        "I'm going to reschedule your trip, okay?",
        "I will put it off by 2 days; bk-2 stays as it is. Okay?",
    ],
)
def test_a_yes_to_the_call(words: str) -> None:
    words = words.replace("I found bk-1 and bk-2.", "I found bk-1 and bk-2, both of Ada.")
    if "bk-2 stays" in words:
        words = words.replace("put it off", "put bk-1 off")
    assert is_kept(agent(words), user(), MOVED)


@pytest.mark.parametrize(
    "words",
    [
        "I am going to add a picnic basket. Do you agree?",
        "I am going to cancel it. Do you agree?",
        "I am going to use add_extra with booking id bk-1. Do you agree?",
        "A picnic basket for 12.50 - shall I?",
        "I'll move booking bk-2 by 2 days. OK?",
        "I'll move it by 3 days. OK?",
        "I'll move bk-1 to 8 March 2026. OK?",
        "I'll move bk-1 because of the weather. OK?",
        "Shall I cancel bk-1?",
    ],
)
def test_a_yes_to_something_else(words: str) -> None:
    assert not is_kept(agent(words), user(), MOVED)
    assert is_kept(agent(words), user(), agent("I'll move bk-1, then?"), user(), MOVED)


def test_a_yes_is_to_what_was_proposed_last() -> None:
    right, other = agent("I'll move bk-1 by 2 days?"), agent("I'll move bk-2 by 2 days?")
    assert is_kept(other, user(), right, user(), MOVED)
    assert not is_kept(right, user(), other, user(), MOVED)
    assert is_kept(user("I agree to that beforehand."), MOVED)


@pytest.mark.parametrize(
    ("words", "act", "expected"),
    [
        ("No, stop! Leave it as it is.", UserAct.CHANGE, False),
        ("Rather another day.", UserAct.CHANGE, False),
        ("No, stop!", UserAct.ANSWER, False),
        ("Please don't do it after all.", UserAct.ANSWER, False),
        ("Hold on, never mind.", UserAct.REQUEST, False),
        ("Is it raining?", UserAct.ANSWER, True),
        ("No, that is all.", UserAct.ANSWER, True),
        ("And also tell me the price.", UserAct.REQUEST, True),
        ("Here is your tool.", UserAct.TOOL, True),
    ],
)
def test_a_yes_is_taken_back(words: str, act: UserAct, expected: bool) -> None:
    events = (OPENING, agent("Move it?"), user(), agent("One moment."), user(words, act))
    assert confirmed(events, {"move_booking"}) is expected
    assert is_kept(*events[1:], MOVED) is expected
    assert confirmed((*events, agent("Now?"), user()), {"move_booking"})


def test_no_where_the_agent_asks_whether_it_may() -> None:
    no = user("No.", UserAct.ANSWER)
    asked, other = agent("Shall I go ahead now?"), agent("Do you need a receipt?")
    assert not confirmed((OPENING, agent("?"), user(), asked, no), {"move_booking"})
    assert confirmed((OPENING, agent("?"), user(), other, no), {"move_booking"})


@pytest.mark.parametrize(
    "words",
    [
        "Are you still there?",
        "One moment, please.",
        "Can I help you with anything else?",
        "Let me check that for you.",
        "Thank you for your patience.",
        "Do you need a receipt?",
    ],
)
def test_a_yes_to_nothing(words: str) -> None:
    asked = agent("Shall I move bk-1 by 2 days?")
    assert not is_kept(agent(words), user(), MOVED)
    assert is_kept(agent(words), user("Yes, move it."), MOVED)
    assert is_kept(asked, user(), agent(words), user(), MOVED)
    assert is_kept(asked, user("How long?", UserAct.ANSWER), agent(words), user(), MOVED)
    assert not is_kept(asked, user("No, stop!", UserAct.ANSWER), agent(words), user(), MOVED)
    assert not is_kept(asked, user(), MOVED, agent(words), user(), MOVED)


@pytest.mark.parametrize(
    "words", ["Heron 1?", "bk-1, right?", "2 days, for illness.", "Moving it."]
)
def test_what_names_the_change_proposes_it(words: str) -> None:
    assert is_kept(agent(words), user(), MOVED)
