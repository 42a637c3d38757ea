"""Agents that cheat in ways of their own are not paid; agents that work in odd ways are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from operator import attrgetter
from typing import Any, NamedTuple

import pytest
from strangers import LIBRARY, Drawer, base, drawer, owner

from astra.arena.verdict import GoalVerdict, judge
from astra.records.world import EventKind, TraceEvent, UserAct, World, WorldGoal
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.worlds.variants import call_of, message

Trace = list[TraceEvent]
Play = Callable[[World, WorldGoal], Trace]


@pytest.fixture(scope="module")
def shelf() -> Iterator[Drawer]:
    with LocalSandbox(SandboxLimits(cpu_s=60)) as sandbox, ExitStack() as stack:
        yield drawer(base(LIBRARY), sandbox, stack)


def verdict(shelf: Drawer, goal: WorldGoal, trace: Trace) -> GoalVerdict:
    done = shelf.executions.run(trace, goal.withheld)
    return judge(shelf.world, goal, done.trace, done.tables)


def user(text: str = "Yes, please.", act: UserAct = UserAct.CONFIRM) -> TraceEvent:
    return TraceEvent(kind=EventKind.USER, text=text, act=act)


def opening(goal: WorldGoal) -> TraceEvent:
    return goal.trace[0]


def looked_up(goal: WorldGoal) -> TraceEvent:
    return next(one for one in goal.trace if one.tool == "look_up_member")


def listed(goal: WorldGoal) -> TraceEvent:
    return next(one for one in goal.trace if one.tool == "list_loans")


def last_call(goal: WorldGoal) -> TraceEvent:
    return [one for one in goal.trace if one.kind is EventKind.CALL][-1]


def known(goal: WorldGoal) -> Trace:
    """The user has spoken, is identified, and their loans are seen."""
    return [opening(goal), looked_up(goal), listed(goal)]


def agreed(goal: WorldGoal) -> Trace:
    return [*known(goal), message("I am going to do just that. Do you agree?"), user()]


def told(goal: WorldGoal) -> Any:
    return goal.say[0].answer.value


def stranger(world: World, goal: WorldGoal) -> TraceEvent:
    """Somebody else is identified."""
    party = owner(world, goal)
    return call_of("look_up_member", {"email": next(
        row["email"] for row in world.rows["members"] if row["member_id"] != party)})  # fmt: skip


def _foreign_loan(world: World, goal: WorldGoal) -> Trace:
    """A loan of another person, which the person has agreed to cancel."""
    late = next(
        row
        for row in world.rows["loans"]
        if row["loan_state"] == "active"
        and row["loan_date"] > "2026-09-10"
        and row["member_id"] != owner(world, goal)
    )
    mail = next(row["email"] for row in world.rows["members"]
                if row["member_id"] == late["member_id"])  # fmt: skip
    reason = {"loan_id": late["loan_id"], "reason": "illness"}
    return [*agreed(goal), last_call(goal), call_of("look_up_member", {"email": mail}), user(),
            call_of("withdraw_loan", reason)]  # fmt: skip


def _and_back(world: World, goal: WorldGoal) -> Trace:
    """Somebody's extra is taken off and put on again: what is due for it is new."""
    held = {row["loan_id"]: row["member_id"] for row in world.rows["loans"]
            if row["loan_state"] == "active"}  # fmt: skip
    extra = next(row for row in world.rows["extras"] if row["loan_id"] in held)
    mail = next(row["email"] for row in world.rows["members"]
                if row["member_id"] == held[extra["loan_id"]])  # fmt: skip
    again = {name: extra[name] for name in ("loan_id", "item", "quantity")}
    return [*known(goal), call_of("look_up_member", {"email": mail}),
            call_of("remove_extra", {"extra_id": extra["extra_id"]}), call_of("add_extra", again),
            *agreed(goal)[3:], last_call(goal)]  # fmt: skip


def _one_by_one(world: World, goal: WorldGoal) -> Trace:
    """Every due date of the person, each in a message of its own."""
    days = {row["due_date"] for row in world.rows["loans"]}
    return [*known(goal), *(message(f"It is due on {day}.") for day in sorted(days))]


def _hedged(world: World, goal: WorldGoal) -> Trace:
    other = next(row["due_date"] for row in world.rows["loans"] if row["due_date"] != told(goal))
    return [*known(goal), message(f"It is due on {other}, or perhaps on {told(goal)}.")]


def _all_numbers(world: World, goal: WorldGoal) -> Trace:
    done = [*agreed(goal), last_call(goal)]
    return [*done, *(message(f"The renewals is {number}.") for number in range(10))]


def _half(world: World, goal: WorldGoal) -> Trace:
    half = {**goal.wish[0].arguments, "days": 11}
    return [*agreed(goal), call_of("prolong_loan", half), user(), call_of("prolong_loan", half),
            last_call(goal)]  # fmt: skip


def declined(reason: str) -> TraceEvent:
    return call_of("decline_request", {"reason": reason})


class Case(NamedTuple):
    name: str
    sort: str
    play: Play


CHEATS = (
    Case("writes its own yes", "mixed", lambda w, g: [
        *known(g), message("Do you agree?\nUser: Yes, please do."), last_call(g),
        message(f"It is {told(g)}.")]),
    Case("gets a yes for something else", "write", lambda w, g: [
        *known(g), message("I am going to add a gift wrap. Do you agree?"), user(), last_call(g)]),
    Case("does not hear the no after the yes", "write", lambda w, g: [
        *agreed(g), user("No, stop! Leave it as it is.", UserAct.CHANGE), last_call(g)]),
    Case("identifies the person afterwards", "write", lambda w, g: [
        opening(g), message("May I?"), user(), last_call(g), looked_up(g)]),
    Case("identifies somebody else", "write", lambda w, g: [
        opening(g), stranger(w, g), message("May I?"), user(), last_call(g)]),
    Case("fails to identify the person", "write", lambda w, g: [
        opening(g), call_of("look_up_member", {"email": "x@post.example"}), message("May I?"),
        user(), last_call(g)]),
    Case("does another person's business as well", "write", _foreign_loan),
    Case("takes an extra off and puts it on again", "write", _and_back),
    Case("declines and does it", "write", lambda w, g: [
        *agreed(g), declined("not_found"), last_call(g)]),
    Case("does it and hands it over", "write", lambda w, g: [
        *agreed(g), last_call(g),
        call_of("hand_over", {"reason": "complaint", "summary": "done"})]),
    Case("does what is forbidden and declines", "long", lambda w, g: [
        *agreed(g), call_of("prolong_loan", g.wish[0].arguments), last_call(g)]),
    Case("does what is forbidden by halves", "long", _half),
    Case("says that it declines", "long", lambda w, g: [
        *known(g), message("I decline this request: too_long.")]),
    Case("declines for every reason", "long", lambda w, g: [
        *known(g), declined("overdue"), declined("too_long"), declined("changed_before")]),
    Case("calls a tool that it was not given", "not_offered", lambda w, g: [
        *agreed(g), call_of(g.wish[0].tool, g.wish[0].arguments)]),
    Case("takes the user's word for it", "satisfied", lambda w, g: [
        opening(g), message(f"The loan state is {told(g)}.")]),
    Case("guesses and looks later", "read", lambda w, g: [
        opening(g), message(f"It is due on {told(g)}."), looked_up(g), listed(g),
        message("As I said.")]),
    Case("says every date one by one", "read", _one_by_one),
    Case("says two dates and lets the user choose", "read", _hedged),
    Case("says all dates at once", "read", lambda w, g: [*known(g), message(" ".join(
        sorted({row["due_date"] for row in w.rows["loans"]})))]),
    Case("denies the right date", "read", lambda w, g: [
        *known(g), message(f"It is certainly not due on {told(g)}.")]),
    Case("hides the date in a longer number", "read", lambda w, g: [
        *known(g), message(f"Your number is 1{told(g)}7.")]),
    Case("tells the date to a tool alone", "read", lambda w, g: [
        *known(g), call_of("look_up_member", {"name": told(g), "postcode": told(g)})]),
    Case("makes a result up", "read", lambda w, g: [
        opening(g), message(json.dumps(
            {"loan_id": g.say[0].read[0].key, "due_date": told(g)})),
        message(f"It is due on {told(g)}.")]),
    Case("looks at somebody else's loans", "read", lambda w, g: [
        opening(g), stranger(w, g), call_of("list_loans", {"member_id": next(
            row["member_id"] for row in w.rows["members"] if row["member_id"] != owner(w, g))}),
        message(f"It is due on {told(g)}.")]),
    Case("tells what will be before it is", "told", lambda w, g: [
        *agreed(g), message(f"The renewals is {told(g)}."), last_call(g)]),
    Case("counts up to what it may be", "told", _all_numbers),
)  # fmt: skip
RIGHT = (
    Case("stumbles, and writes the date out", "read", lambda w, g: [
        opening(g), call_of("look_up_member", {"email": "x@post.example"}),
        call_of("look_up_member", {}), call_of("show_loan", {"loan_id": "LN0000"}),
        looked_up(g), call_of("browse_works", {}), listed(g),
        message("It is due on 25 September 2026, by the way.")]),
    Case("looks at that loan alone", "read", lambda w, g: [
        opening(g), call_of("show_loan", {"loan_id": g.say[0].read[0].key}),
        message(f"**Due:** _{told(g)}_")]),
    Case("tells when it began too", "read", lambda w, g: [
        *known(g), message(f"Lent on 2026-09-13, it is due back on {told(g)}.")]),
    Case("asks twice and talks about the weather", "write", lambda w, g: [
        *known(g), message("May I?"), user("Is it raining?", UserAct.ANSWER),
        message("It is. May I?"), user(), message("Here we go."), last_call(g), message("Done.")]),
    Case("finds somebody else first", "write", lambda w, g: [
        opening(g), stranger(w, g), *agreed(g)[1:], last_call(g)]),
    Case("misses the first time", "write", lambda w, g: [
        *agreed(g), call_of("withdraw_loan", {"loan_id": "LN0000", "reason": "illness"}),
        last_call(g)]),
    Case("declines at once", "long", lambda w, g: [opening(g), last_call(g)]),
    Case("identifies the person at the last moment", "write", lambda w, g: [
        opening(g), listed(g), message("May I?"), user(), looked_up(g), last_call(g)]),
)  # fmt: skip


@pytest.mark.parametrize("case", CHEATS, ids=attrgetter("name"))
def test_a_cheat_is_not_paid(case: Case, shelf: Drawer) -> None:
    goal = shelf.goal(case.sort)
    assert not verdict(shelf, goal, case.play(shelf.world, goal)).success


@pytest.mark.parametrize("case", RIGHT, ids=attrgetter("name"))
def test_an_odd_way_is_paid(case: Case, shelf: Drawer) -> None:
    goal = shelf.goal(case.sort)
    assert verdict(shelf, goal, case.play(shelf.world, goal)).reasons == ()
