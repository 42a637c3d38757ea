"""What a user's words ask for, spoiled in one way each: the goal is rejected for that reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from goal_samples import (
    DECLINED,
    Shelf,
    answer,
    changed_event,
    ends,
    opening_adds,
    other,
    place,
    unknown_wish,
    with_argument,
)

from astra.records.world import (
    EventKind,
    GoalTrait,
    OutcomeKind,
    UserAct,
    UserAsk,
    WorldGoal,
)

Spoil = Callable[[WorldGoal, Shelf], WorldGoal]


def reworded(goal: WorldGoal, old: str, new: str) -> WorldGoal:
    """The goal whose user says something else, and is said to."""
    assert any(old in event.text for event in goal.trace if event.kind == EventKind.USER), old
    for at, event in enumerate(goal.trace):
        if event.kind == EventKind.USER:
            goal = changed_event(goal, at, text=event.text.replace(old, new))
    asks = tuple(ask.model_copy(update={"text": ask.text.replace(old, new)}) for ask in goal.asks)
    return other(goal, asks=asks)


def asks(goal: WorldGoal, **fields: Any) -> WorldGoal:
    """The goal whose first ask amounts to something else."""
    first, *rest = goal.asks
    return other(goal, asks=(first.model_copy(update=fields), *rest))


def asks_more(goal: WorldGoal, shelf: Shelf) -> WorldGoal:
    """The goal with a second wish, said and declared, that nothing meets."""
    call = shelf.pool.legal["pay_fines"][0]
    ask = UserAsk(at=0, text="Pay all fines due of mine.", tool=call.tool, arguments=call.arguments)
    return other(opening_adds(goal, ask.text), asks=(*goal.asks, ask))


def named(goal: WorldGoal) -> str:
    """The key of the loan that the opening names."""
    return str(goal.trace[0].facts["loan_id"])


def other_loan(goal: WorldGoal, shelf: Shelf) -> WorldGoal:
    """The user names another loan of theirs, or of anybody."""
    owner = next(e.arguments["member_id"] for e in goal.trace if "member_id" in e.arguments)
    rows = sorted(shelf.world.rows["loans"], key=lambda row: row["member_id"] != owner)
    key = next(row["loan_id"] for row in rows if row["loan_id"] != named(goal))
    goal = changed_event(goal, 0, facts={**goal.trace[0].facts, "loan_id": key})
    return reworded(goal, named_of(goal, shelf), key)


def named_of(goal: WorldGoal, shelf: Shelf) -> str:
    """The key of a loan that the opening's words hold."""
    keys = [row["loan_id"] for row in shelf.world.rows["loans"]]
    return next(key for key in keys if key in goal.trace[0].text)


def foreign(goal: WorldGoal, shelf: Shelf) -> WorldGoal:
    """A wish about a loan of somebody else, named by its key."""
    call = goal.wish[0]
    rows = {row["loan_id"]: row["member_id"] for row in shelf.world.rows["loans"]}
    key = next(k for k, owner in rows.items() if owner != rows[call.arguments["loan_id"]])
    wish = call.model_copy(update={"arguments": {**call.arguments, "loan_id": key}})
    goal = other(reworded(goal, named(goal), key), wish=(wish,))
    return asks(goal, arguments=wish.arguments)


def told_twice(goal: WorldGoal) -> WorldGoal:
    """The opening names the row that is chosen later by the fact that chooses it."""
    at = place(goal, lambda event: event.act is UserAct.CHOOSE)
    ((slot, value),) = goal.trace[at].facts.items()
    fact = f" with {slot.rpartition('.')[2].replace('_', ' ')} {value}"
    return reworded(goal, goal.asks[0].text, goal.asks[0].text.rstrip(".") + fact)


def idle_state(goal: WorldGoal) -> WorldGoal:
    """What is told is what it would be if the wish did not hold yet."""
    last = place(goal, lambda event: event.kind == EventKind.ASSISTANT)
    told = changed_event(goal, last, text="The loan state is active.")
    return answer(told, "active")


def unavailable(goal: WorldGoal) -> WorldGoal:
    """Declined because nothing is to be had, which is not why it fails."""
    at = place(goal, lambda event: event.tool == "decline_request")
    return ends(with_argument(goal, at, reason="not_available"), DECLINED, "not_available")


SPOILED: dict[str, tuple[str, str, Spoil]] = {
    "an infeasible wish that is done": ("refused", "wrong_kind", lambda g, s: ends(
        g, OutcomeKind.DONE)),
    "not to be had, where there is none": ("refused", "wrong_reason", lambda g, s: unavailable(g)),
    "not to be had, where no tool is": ("not_offered", "wrong_reason", lambda g, s: unavailable(g)),
    "a forbidden wish for a person": ("forbidden", "wrong_kind", lambda g, s: ends(
        g, OutcomeKind.HANDED_OVER, "complaint")),
    "words that ask for nothing": ("write", "nothing_asked", lambda g, s: other(g, asks=())),
    "words that nobody says": ("write", "ask_untold", lambda g, s: asks(g, text="Do it all.")),
    "words of no turn": ("write", "ask_untold", lambda g, s: asks(g, at=1)),
    "a wish that nobody meets": ("write", "ask_unmet", asks_more),
    "a question that nobody answers": ("mixed", "ask_unmet", lambda g, s: other(g, say=())),
    "a change that nobody asks for": ("mixed", "unasked", lambda g, s: other(g, asks=g.asks[1:])),
    "an answer that nobody asks for": ("mixed", "unasked", lambda g, s: other(g, asks=g.asks[:1])),
    "an ask for nothing": ("read", "ask_unmet", lambda g, s: asks(g, cell=None)),
    "another verb": ("mixed", "other_words", lambda g, s: reworded(
        reworded(g, "call off", "prolong"), "cancel", "prolong") if "cancel" in g.trace[0].text
        else reworded(g, "call off", "prolong")),
    "another column": ("read", "other_words", lambda g, s: reworded(
        g, g.say[0].read[0].column.replace("_", " "), "colour")),
    "another topic in the words": ("topic", "other_words", lambda g, s: reworded(
        g, s.world.topics[g.outcome.reason], "the weather")),
    "another topic than the code": ("topic", "wrong_topic", lambda g, s: asks(g, topic="complaint"
        if g.outcome.reason != "complaint" else "donation")),
    "another loan is read": ("read", "other_row", other_loan),
    "another loan is changed": ("mixed", "other_row", other_loan),
    "another loan is forbidden": ("forbidden", "other_row", other_loan),
    "another loan holds already": ("satisfied", "other_row", other_loan),
    "a loan of another state": ("write", "other_row", lambda g, s: reworded(
        g, str(next(iter(g.references[0].where.values()))), "bygone")),
    "another number of days": ("forbidden", "argument_untold", lambda g, s: reworded(
        g, str(g.wish[0].arguments["days"]), "77")),
    "a wish about a stranger's loan": ("forbidden", "other_party", foreign),
    "what holds does not": ("satisfied", "not_satisfied", lambda g, s: asks(
        g, tool="pay_fines", arguments=s.pool.legal["pay_fines"][0].arguments)),
    "told what is not so": ("satisfied", "other_value", lambda g, s: idle_state(g)),
    "more in the opening": ("write", "more_asked", lambda g, s: opening_adds(
        g, "I also want my receipts.")),
    "more in another turn": ("write", "more_asked", lambda g, s: changed_event(
        g, place(g, lambda e: e.act is UserAct.CONFIRM), text="Yes. Could you sing, too?")),
    "more in passing": ("read", "more_asked", lambda g, s: opening_adds(
        g, "My fines have to be paid.")),
    "a trait too many": ("read", "other_traits", lambda g, s: other(
        g, traits=(*g.traits, GoalTrait.CHANGES_MIND))),
    "a trait too few": ("write", "other_traits", lambda g, s: other(g, traits=())),
    "a choice that is told before": ("choice", "choice_told", lambda g, s: told_twice(g)),
    "candidates of yesterday": ("choice", "wrong_candidates", lambda g, s: other(
        g, candidates=tuple({**row, "renewals": 99} for row in g.candidates))),
    "a first version that fails": ("changes", "first_version", lambda g, s: unknown_wish(g)),
    "asked for what no call takes": ("missing", "nothing_missing", lambda g, s: changed_event(
        g, place(g, lambda e: e.act is UserAct.ANSWER), facts={"colour": "blue"})),
}  # fmt: skip


@pytest.mark.parametrize("spoiled", SPOILED)
def test_words_that_do_not_fit_the_goal_are_found(shelf: Shelf, spoiled: str) -> None:
    sort, reason, spoil = SPOILED[spoiled]
    goal = spoil(shelf.goals[sort], shelf)
    assert goal != shelf.goals[sort]
    assert reason in shelf.reasons(goal)


@pytest.mark.parametrize("words", [
    "Thank you very much!", "I am in a hurry.", "Good evening and best regards.", "It rains here.",
])  # fmt: skip
def test_words_that_ask_for_nothing_are_fine(shelf: Shelf, words: str) -> None:
    assert [shelf.reasons(opening_adds(goal, words)) for goal in shelf.goals.values()] == [
        []
    ] * len(shelf.goals)
