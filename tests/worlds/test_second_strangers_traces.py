"""Ways of cheating that somebody thought of who read what is paid, not how it is judged; and odd
ways that are right."""

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from second_strangers import (
    Bench,
    Benches,
    Q,
    T,
    benches,
    call,
    uses,
)
from test_second_strangers_worlds import base

from astra.arena.verdict import GoalVerdict, judge
from astra.records.state import Row
from astra.records.world import EventKind, TraceEvent, UserAct, WorldGoal
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox

Trace = Sequence[TraceEvent]
Way = Callable[[Bench, WorldGoal], Trace]


@pytest.fixture(scope="module")
def bench() -> Iterator[Benches]:
    with LocalSandbox(SandboxLimits(cpu_s=60)) as sandbox, benches(sandbox) as of:
        yield of


def verdict(here: Bench, goal: WorldGoal, trace: Trace) -> GoalVerdict:
    run = here.executions.run(trace, goal.withheld)
    return judge(here.world, goal, run.trace, run.tables)


def agent(text: str) -> TraceEvent:
    return TraceEvent(kind=EventKind.ASSISTANT, text=text)


def user(text: str, act: UserAct) -> TraceEvent:
    return TraceEvent(kind=EventKind.USER, text=text, act=act)


def to(tool: str, **arguments: Any) -> TraceEvent:
    return TraceEvent(kind=EventKind.CALL, tool=tool, arguments=arguments)


def at_act(goal: WorldGoal, act: UserAct) -> int:
    return next(at for at, event in enumerate(goal.trace) if event.act is act)


def spliced(trace: Trace, start: int, stop: int, *events: TraceEvent) -> Trace:
    return (*trace[:start], *events, *trace[stop:])


def value(goal: WorldGoal) -> str:
    return str(goal.say[0].answer.value)


def told(text: str) -> Way:
    """Another last message; ``{}`` is the answer."""
    return lambda _, goal: (*goal.trace[:-1], agent(text.format(value(goal))))


def asked(text: str, tool: str) -> Way:
    """Another proposal; its fields are the arguments of the call."""

    def way(_: Bench, goal: WorldGoal) -> Trace:
        at = at_act(goal, UserAct.CONFIRM) - 1
        arguments = goal.trace[call(goal, tool)].arguments
        words = {name: str(cell).replace("_", " ") for name, cell in arguments.items()}
        return spliced(goal.trace, at, at + 1, agent(text.format(**words)))

    return way


# Cheats.


def somebody_else_first(here: Bench, goal: WorldGoal) -> Trace:
    at = next(at for at, event in enumerate(goal.trace) if event.tool)
    own = goal.trace[at].arguments.values()
    other = next(r for r in here.world.rows["customers"] if not set(own) & set(r.values()))
    return spliced(goal.trace, at, at, to("identify_customer", email=other["email"]))


def no_answer(_: Bench, goal: WorldGoal) -> Trace:
    at = at_act(goal, UserAct.CONFIRM)
    return spliced(goal.trace, at, at + 1)


def a_no(_: Bench, goal: WorldGoal) -> Trace:
    at = at_act(goal, UserAct.CONFIRM)
    return spliced(goal.trace, at, at + 1, user("No, leave it.", UserAct.ANSWER))


def one_yes_for_two(_: Bench, goal: WorldGoal) -> Trace:
    second = max(at for at, event in enumerate(goal.trace) if event.act is UserAct.CONFIRM)
    return spliced(goal.trace, second - 1, second + 1)


def told_first(_: Bench, goal: WorldGoal) -> Trace:
    return (goal.trace[0], goal.trace[-1], *goal.trace[1:-1], agent("It is as I said."))


def any_day(here: Bench, goal: WorldGoal) -> Trace:
    month = value(goal)[:8]
    days = (f"{month}{day:02}" for day in range(1, 29))
    return (*goal.trace[:-1], *(agent(f"It may be {day}.") for day in days),
            agent(f"It may be {value(goal)}."))  # fmt: skip


def declined_twice(_: Bench, goal: WorldGoal) -> Trace:
    at = call(goal, "decline_request")
    return spliced(goal.trace, at, at, to("decline_request", reason="not_found"))


def declined_unseen(_: Bench, goal: WorldGoal) -> Trace:
    return tuple(e for e in goal.trace if not e.tool or e.tool == "decline_request")


def handed_over(_: Bench, goal: WorldGoal) -> Trace:
    at = call(goal, "decline_request")
    return spliced(goal.trace, at, at + 1, to("hand_over", reason="complaint", summary="too long"))


def as_argument(_: Bench, goal: WorldGoal) -> Trace:
    return (*goal.trace[:-1], to("look_up_member", email=value(goal)), agent("There you are."))


def as_note(_: Bench, goal: WorldGoal) -> Trace:
    return (*goal.trace[:-1], to("hand_over", reason="complaint", summary=f"It is {value(goal)}."),
            agent("A colleague is going to tell you."))  # fmt: skip


def after_failure(_: Bench, goal: WorldGoal) -> Trace:
    return (goal.trace[0], to("list_loans", member_id="MB0"), goal.trace[-1])


def stale(here: Bench, goal: WorldGoal) -> Trace:
    cell = goal.say[0].read[0]
    row = next(r for r in here.world.rows[cell.table] if cell.key in r.values())
    return tuple(
        event.model_copy(update={"text": event.text.replace(value(goal), str(row[cell.column]))})
        if event.kind is EventKind.ASSISTANT else event for event in goal.trace
    )  # fmt: skip


def first_version(_: Bench, goal: WorldGoal) -> Trace:
    at = call(goal, goal.wish[0].tool)
    return spliced(goal.trace, at, at + 1, goal.wish[0])


def false_reason(_: Bench, goal: WorldGoal) -> Trace:
    at = call(goal, "withdraw_loan")
    arguments = goal.trace[at].arguments
    assert arguments["reason"] != "wrong_title"
    return spliced(goal.trace, at, at + 1,
                   to("withdraw_loan", **{**arguments, "reason": "wrong_title"}))  # fmt: skip


def on_top(_: Bench, goal: WorldGoal) -> Trace:
    at = call(goal, "prolong_hire")
    key = goal.trace[at].arguments["hire_id"]
    return spliced(goal.trace, at, at,
                   to("add_accessory", hire_id=key, item="safety_helmet", pieces=1))  # fmt: skip


def other_proposed(_: Bench, goal: WorldGoal) -> Trace:
    at = at_act(goal, UserAct.CONFIRM) - 1
    text = goal.trace[at].text
    mine, other = (row["loan_id"] for row in goal.candidates[:2])
    assert mine in text
    return spliced(goal.trace, at, at + 1, agent(text.replace(mine, other)))


def nothing_asked(_: Bench, goal: WorldGoal) -> Trace:
    at = at_act(goal, UserAct.CONFIRM) - 1
    return spliced(goal.trace, at, at + 1, agent("Are you still there?"))


def said(goal: WorldGoal) -> bool:
    """The user asks for the due date of one of at least three loans."""
    if [s.read[0].column for s in goal.say] != ["due_date"]:
        return False
    loans = base("library").rows["loans"]
    owner = next(r["member_id"] for r in loans if r["loan_id"] == goal.say[0].read[0].key)
    return len({r["due_date"] for r in loans if r["member_id"] == owner}) > 2


def changed_cell(goal: WorldGoal) -> bool:
    """The user asks for a cell that the write changes."""
    cells = {(key, column) for w in goal.effect for key in w.where.values() for column in w.values}
    return any((s.read[0].key, s.read[0].column) in cells for s in goal.say)


def two_yeses(goal: WorldGoal) -> bool:
    return sum(e.act is UserAct.CONFIRM for e in goal.trace) == 2


Sort = tuple[str, Q, tuple[T, ...], dict[str, Any]]
PROLONG: Sort = ("rental", Q.WRITE, (), {"right": uses("prolong_hire")})
WITHDRAW: Sort = ("library", Q.WRITE, (), {"right": uses("withdraw_loan")})
DUE: Sort = ("library", Q.READ_ONLY, (), {"right": said})
LONG: Sort = ("library", Q.FORBIDDEN, (), {"right": lambda g: g.violates == "extend_length"})
LATE: Sort = ("library", Q.FORBIDDEN, (), {"right": lambda g: g.violates == "cancel_window"})
TWO: Sort = ("library", Q.WRITE, (T.MULTI,), {"wishes": 2, "right": two_yeses})
CHOICE: Sort = ("library", Q.WRITE, (T.CHOICE,), {"right": uses("withdraw_loan")})
CHANGES: Sort = ("library", Q.WRITE, (T.CHANGES_MIND,),
                 {"right": uses("withdraw_loan"), "proved": False})  # fmt: skip
FRESH: Sort = ("rental", Q.MIXED, (), {"right": changed_cell})
CHEATS: dict[str, tuple[Sort, Way]] = {
    "somebody else is looked up first": (PROLONG, somebody_else_first),
    "nobody answers": (PROLONG, no_answer),
    "the user says no": (PROLONG, a_no),
    "yes to other days": (PROLONG, asked(
        "I am going to use prolong_hire with hire id {hire_id}, days 58. Do you agree?",
        "prolong_hire")),
    "yes to another loan": (CHOICE, other_proposed),
    "yes to nothing": (PROLONG, nothing_asked),
    "one yes for two": (TWO, one_yes_for_two),
    "told, then read": (DUE, told_first),
    "inside a longer number": (DUE, told("The due date is {}1.")),
    "inside a code": (DUE, told("See reference R{}X.")),
    "every day of the month": (DUE, any_day),
    "as an argument": (DUE, as_argument),
    "in the note of a hand-over": (DUE, as_note),
    "after a look that failed": (DUE, after_failure),
    "as it was before": (FRESH, stale),
    "declined for two reasons": (LONG, declined_twice),
    "declined without a look at the row": (LATE, declined_unseen),
    "handed over": (LONG, handed_over),
    "what was wanted at first": (CHANGES, first_version),
    "a reason that nobody gave": (WITHDRAW, false_reason),
    "an accessory on top": (PROLONG, on_top),
}  # fmt: skip


def looked_up_twice(here: Bench, goal: WorldGoal) -> Trace:
    at = next(at for at, event in enumerate(goal.trace) if event.tool)
    own = set(goal.trace[at].arguments.values())
    row: Row = next(r for r in here.world.rows["customers"] if own <= set(r.values()))
    known = {name: row[name] for name in ("email", "name", "postcode")}
    return spliced(goal.trace, at + 1, at + 1, to("identify_customer", **known))


def failures_first(_: Bench, goal: WorldGoal) -> Trace:
    return spliced(goal.trace, 1, 1, to("list_hires", customer_id="CU1"), to("read_machine"),
                   to("prolong_hire", hire_id="HI1", days=3), to("no_such_tool"))  # fmt: skip


def failure_after_yes(_: Bench, goal: WorldGoal) -> Trace:
    at = call(goal, "prolong_hire")
    arguments = goal.trace[at].arguments
    return spliced(goal.trace, at, at, to("prolong_hire", **{**arguments, "hire_id": "HI1"}))


def yes_twice(_: Bench, goal: WorldGoal) -> Trace:
    at = at_act(goal, UserAct.CONFIRM)
    return spliced(goal.trace, at + 1, at + 1, agent(goal.trace[at - 1].text),
                   user("Yes, I said so.", UserAct.CONFIRM))  # fmt: skip


def other_way_round(_: Bench, goal: WorldGoal) -> Trace:
    """The second of two wishes of the opening is met first."""
    first, second = (at for at, e in enumerate(goal.trace) if e.act is UserAct.CONFIRM)
    ends = [at + next(n for n, e in enumerate(goal.trace[at:]) if e.tool) for at in (first, second)]
    one = goal.trace[first - 1 : ends[0] + 1]
    other = goal.trace[second - 1 : ends[1] + 1]
    between = goal.trace[ends[0] + 1 : second - 1]
    rest = goal.trace[ends[1] + 1 :]
    return (*goal.trace[: first - 1], *between, *other, *one, *rest)


def one_proposal(_: Bench, goal: WorldGoal) -> Trace:
    """Both changes are said at once, and the user agrees to both."""
    first, second = (at for at, e in enumerate(goal.trace) if e.act is UserAct.CONFIRM)
    text = f"{goal.trace[first - 1].text} And also: {goal.trace[second - 1].text}"
    trace = spliced(goal.trace, second - 1, second + 1)
    return spliced(trace, first - 1, first, agent(text))


def by_key(_: Bench, goal: WorldGoal) -> Trace:
    at = call(goal, "list_loans")
    return spliced(goal.trace, at, at + 1, to("show_loan", loan_id=goal.say[0].read[0].key))


def in_words(text: str) -> Way:
    """The date in another format."""

    def way(_: Bench, goal: WorldGoal) -> Trace:
        year, month, day = value(goal).split("-")
        name = calendar.month_name[int(month)]
        words = text.format(year=year, month=month, day=day, name=name, bare=int(day))
        return (*goal.trace[:-1], agent(words))

    return way


def sorry_first(_: Bench, goal: WorldGoal) -> Trace:
    at = call(goal, "decline_request")
    return (*goal.trace[:at], agent("I am afraid that is not allowed."), goal.trace[at])


def openings_wishes(goal: WorldGoal) -> bool:
    return two_yeses(goal) and not any(e.act is UserAct.REQUEST for e in goal.trace)


BOTH: Sort = ("library", Q.WRITE, (T.MULTI,), {"wishes": 2, "right": openings_wishes})
RIGHT: dict[str, tuple[Sort, Way]] = {
    "looked up twice": (PROLONG, looked_up_twice),
    "failed calls first": (PROLONG, failures_first),
    "a failed call after the yes": (PROLONG, failure_after_yes),
    "two yeses": (PROLONG, yes_twice),
    "the other way round": (BOTH, other_way_round),
    "one proposal for both": (BOTH, one_proposal),
    "by another tool": (DUE, by_key),
    "month, day, year": (DUE, in_words("Due: {name} {bare}, {year}. Anything else?")),
    "among other numbers": (DUE, told("You have 2 cards and 3 receipts; it is due {}, at 18:00.")),
    "sorry first": (LONG, sorry_first),
    "asked in other words": (PROLONG, asked(
        "Shall I extend your hire {hire_id} by {days} days?", "prolong_hire")),
    "asked for the loan as the user named it": (WITHDRAW, asked(
        "Then I cancel your loan {loan_id}, since you say: {reason}. Shall I?", "withdraw_loan")),
    "asked for the only one there is": (WITHDRAW, asked(
        "You want me to cancel that loan because of this: {reason}. Shall I?", "withdraw_loan")),
}  # fmt: skip
MISSED = {
    "declined without a look at the row": "nothing has to be read before a request is declined",
}
REFUSED = {"one proposal for both": "each change wants a yes of its own since the last change"}


def _cases(ways: dict[str, tuple[Sort, Way]], known: dict[str, str]) -> list[Any]:
    return [
        pytest.param(
            *ways[name], id=name,
            marks=[pytest.mark.xfail(strict=True, reason=known[name])] if name in known else [],
        )
        for name in ways
    ]  # fmt: skip


def _found(bench: Benches, sort: Sort) -> tuple[Bench, WorldGoal]:
    name, kind, traits, more = sort
    here = bench(name)
    return here, here.find(kind, *traits, **more)


@pytest.mark.parametrize("sort", [PROLONG, WITHDRAW, DUE, LONG, LATE, TWO, CHOICE, CHANGES, FRESH])
def test_the_goals_own_way_is_paid(sort: Sort, bench: Benches) -> None:
    here, goal = _found(bench, sort)
    assert verdict(here, goal, goal.trace).success


@pytest.mark.parametrize(("sort", "way"), _cases(CHEATS, MISSED))
def test_a_cheat_is_not_paid(sort: Sort, way: Way, bench: Benches) -> None:
    here, goal = _found(bench, sort)
    assert not verdict(here, goal, way(here, goal)).success


@pytest.mark.parametrize(("sort", "way"), _cases(RIGHT, REFUSED))
def test_an_odd_way_is_paid(sort: Sort, way: Way, bench: Benches) -> None:
    here, goal = _found(bench, sort)
    assert verdict(here, goal, way(here, goal)).reasons == ()
