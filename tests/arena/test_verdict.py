"""Verdicts on traces written by hand: one way to reach the goal, and many that miss it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from world_samples import RULES, column, offer, table, yard

from astra.arena.cells import cells_seen
from astra.arena.verdict import broken_rules, judge
from astra.records.qa import Answer, AnswerType, QuestionKind
from astra.records.state import Row, Tables, Write, WriteAction
from astra.records.world import (
    Enforced,
    EventKind,
    GoalOutcome,
    OutcomeKind,
    ReadProof,
    RowChange,
    Say,
    ToolRole,
    TraceEvent,
    UserAct,
    WorldGoal,
)

WORLD = yard()
ADA, REED = WORLD.rows["people"]
BOAT = WORLD.rows["boats"][2]
DAY = "2026-03-05"
BOOKING: Row = {"booking_id": "bookings-x", "person_id": "p1", "boat_id": "boat-3", "day": DAY,
                "made": "2026-02-01T09:00:00"}  # fmt: skip
TAKEN: Row = {**BOAT, "free": False, "log": ["2026-01-01", DAY]}


def user(text: str = "Yes.", act: UserAct = UserAct.CONFIRM) -> TraceEvent:
    return TraceEvent(kind=EventKind.USER, text=text, act=act)


def agent(text: str) -> TraceEvent:
    return TraceEvent(kind=EventKind.ASSISTANT, text=text)


def call(tool: str, result: Any = None, *changes: RowChange, failed: str = "",
         **arguments: Any) -> TraceEvent:  # fmt: skip
    return TraceEvent(kind=EventKind.CALL, tool=tool, arguments=arguments, result=result,
                      changes=changes, failed=failed)  # fmt: skip


OPENING = user("Ada Moss here. Book the biggest boat, and what does it cost?", UserAct.OPENING)
FIND = call("find_person", ADA, email=ADA["email"])
LIST = call("list_boats", {"items": WORLD.rows["boats"], "page": 1, "pages": 1})
BOOK = call("book_boat", BOOKING, RowChange(table="boats", key="boat-3", row=TAKEN),
            RowChange(table="bookings", key="bookings-x", row=BOOKING),
            person_id="p1", boat_id="boat-3", day=DAY)  # fmt: skip
TOLD = agent("Heron 3 is yours on 2026-03-05; it costs 37.50.")
REFERENCE = (OPENING, FIND, LIST, agent("Heron 3?"), user(), BOOK, TOLD)
GOAL = WorldGoal(
    kind=QuestionKind.MIXED, trace=REFERENCE, outcome=GoalOutcome(kind=OutcomeKind.DONE),
    effect=(
        Write(action=WriteAction.UPDATE, table="boats", where={"boat_id": "boat-3"},
              values={"free": False, "log": ["2026-01-01", DAY]}),
        Write(action=WriteAction.INSERT, table="bookings",
              values={"person_id": "p1", "boat_id": "boat-3", "day": DAY}),
    ),
    say=(Say(answer=Answer(type=AnswerType.NUMBER, value=37.5),
             read=(ReadProof(table="boats", key="boat-3", column="price"),)),),
    must_read=(ReadProof(table="people", key="p1", column="tier"),),
)  # fmt: skip
DECLINED = GOAL.model_copy(
    update={"effect": (), "say": (), "must_read": (),
            "outcome": GoalOutcome(kind=OutcomeKind.DECLINED, reason="tier_too_low")}
)  # fmt: skip


def end(boats: Sequence[Row] = (TAKEN,), bookings: Sequence[Row] = (BOOKING,),
        outcomes: Sequence[Row] = ()) -> Tables:  # fmt: skip
    changed = {row["boat_id"]: row for row in boats}
    return {
        "boats": [changed.get(row["boat_id"], row) for row in WORLD.rows["boats"]],
        "people": [REED, dict(ADA)],
        "bookings": [*bookings, *WORLD.rows["bookings"]],
        "outcomes": list(outcomes),
    }


def without(table: str) -> Tables:
    return {name: rows for name, rows in end().items() if name != table}


def decline(reason: str = "tier_too_low", outcome: str = "declined") -> Row:
    return {"outcome_id": f"o-{reason}", "outcome": outcome, "reason": reason}


def reasons(trace: Sequence[TraceEvent] = REFERENCE, rows: Tables | None = None,
            goal: WorldGoal = GOAL) -> tuple[str, ...]:  # fmt: skip
    verdict = judge(WORLD, goal, trace, end() if rows is None else rows)
    assert verdict.success == (not verdict.reasons)
    return verdict.reasons


def test_the_reference_reaches_the_goal() -> None:
    verdict = judge(WORLD, GOAL, REFERENCE, end())
    assert verdict.reasons == ()
    assert verdict.state
    assert verdict.outcome
    assert verdict.said
    assert verdict.read


def test_what_is_not_compared_makes_no_difference() -> None:
    other = {**BOOKING, "booking_id": "b-77", "made": "later"}
    float_price = {**TAKEN, "price": 37.50, "seats": 6.0}
    assert reasons(rows=end(boats=(float_price,), bookings=(other,))) == ()


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (WORLD.rows, ("state_missing:boats", "state_extra:boats", "state_missing:bookings")),
        (end(bookings=()), ("state_missing:bookings",)),
        (end(bookings=(BOOKING, {**BOOKING, "booking_id": "again"})), ("state_extra:bookings",)),
        (end(bookings=(BOOKING, BOOKING)), ("state_extra:bookings",)),
        (end(bookings=({**BOOKING, "day": "2026-03-06"},)),
         ("state_missing:bookings", "state_extra:bookings")),
        (end(boats=({**TAKEN, "log": [DAY, "2026-01-01"]},)),
         ("state_missing:boats", "state_extra:boats")),
        (end(boats=({**TAKEN, "free": 0},)), ("state_missing:boats", "state_extra:boats")),
        (end(boats=(TAKEN, {**WORLD.rows["boats"][0], "free": False})),
         ("state_missing:boats", "state_extra:boats")),
        ({**end(), "people": []}, ("state_missing:people",)),
        (without("people"), ("table_missing:people",)),
        ({**end(), "cars": []}, ("table_unknown:cars",)),
        (without("outcomes"), ("table_missing:outcomes",)),
        (end(outcomes=(decline(),)), ("outcome_wrong:done",)),
    ],
)  # fmt: skip
def test_another_end_state(rows: Tables, expected: tuple[str, ...]) -> None:
    assert reasons(rows=rows) == expected


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (end((), (), (decline(),)), ()),
        (end((), ()), ("outcome_missing:declined",)),
        (end((), (), (decline("not_found"),)), ("outcome_wrong:declined",)),
        (end((), (), (decline(outcome="handed_over"),)), ("outcome_wrong:declined",)),
        (end((), (), (decline(), decline("not_found"))), ("outcome_wrong:declined",)),
        (end(outcomes=(decline(),)),
         ("state_missing:boats", "state_extra:boats", "state_extra:bookings")),
    ],
)  # fmt: skip
def test_declining_is_a_row(rows: Tables, expected: tuple[str, ...]) -> None:
    assert reasons((OPENING, agent("No.")), rows, DECLINED) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It costs 37.5.", ()), ("€37.50!", ()), ("It is 37.50, not 25.", ()),
        ("It is booked.", ("unsaid:0",)), ("It costs 37.", ("unsaid:0",)),
        ("It costs 137.5 or 37.51.", ("unsaid:0",)), ("See 37.5-A.", ("unsaid:0",)),
        ("12.5, 25 or 37.5.", ("said_among_others:0",)),
    ],
)  # fmt: skip
def test_the_price_is_told(text: str, expected: tuple[str, ...]) -> None:
    assert reasons((*REFERENCE[:-1], agent(text))) == expected


def test_a_value_counts_after_it_could_be_known() -> None:
    early = agent("It costs 37.50.")
    assert reasons((OPENING, early, *REFERENCE[1:-1])) == ("said_unread:0",)
    assert reasons((OPENING, early, *REFERENCE[1:])) == ()
    failed = LIST.model_copy(update={"failed": "no"})
    assert reasons((OPENING, FIND, failed, *REFERENCE[3:])) == ("said_unread:0",)
    assert reasons((*REFERENCE[:-1], user(TOLD.text))) == ("unsaid:0",)


def test_a_cell_that_must_be_read() -> None:
    unread = (OPENING, call("find_person", {"person_id": "p1"}, email="x"), *REFERENCE[2:])
    assert reasons(unread) == ("unread:people.tier",)
    another = (OPENING, call("find_person", REED, email="y"), *REFERENCE[2:])
    assert reasons(another) == ("unread:people.tier", "rule:authenticate")


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        ((OPENING, LIST, BOOK, FIND, TOLD), ("rule:authenticate", "rule:confirm")),
        ((OPENING, FIND, LIST, BOOK, user(), TOLD), ("rule:confirm",)),
        ((OPENING, FIND, LIST, user(), BOOK.model_copy(update={"failed": "no"}), BOOK, TOLD), ()),
        ((OPENING, FIND, LIST, user(), BOOK, TOLD, call("cancel_booking", booking_id="b")),
         ("rule:confirm",)),
    ],
)  # fmt: skip
def test_rules_that_no_tool_enforces(
    trace: tuple[TraceEvent, ...], expected: tuple[str, ...]
) -> None:
    assert reasons(trace) == expected


def test_rules_look_at_the_tables_as_the_call_found_them() -> None:
    promoted = RowChange(table="people", key="p2", row={**REED, "tier": "gold"})
    found = call("find_person", REED, email="y")
    book = BOOK.model_copy(
        update={"arguments": {**BOOK.arguments, "person_id": "p2"}, "changes": ()}
    )
    upgrade = call("upgrade", None, promoted)
    told = [rule.id for _, rule in broken_rules(WORLD, (found, user(), book, upgrade, book))]
    assert told == ["tier", "confirm"]
    told = [rule.id for _, rule in broken_rules(WORLD, (found, user(), upgrade, book))]
    assert told == []


def test_a_rule_that_a_tool_enforces_is_the_tools() -> None:
    enforced = tuple(rule.model_copy(update={"enforced": Enforced.TOOL}) for rule in RULES)
    world = yard(rules=enforced)
    assert list(broken_rules(world, (BOOK,))) == []


def test_a_cell_belongs_to_the_table_of_its_record() -> None:
    joined = {**BOOKING, "tier": "gold", "name": "Ada Moss"}
    tool = offer(
        "show", "", ToolRole.GET, (), {"bookings": ("person_id", "day"), "people": ("tier",)}
    )
    world = yard((tool,), tables=(*WORLD.tables, table("x", "x_id", column("day"))))
    seen = cells_seen(world, (call("show", {"items": [joined]}), call("show", {"day": DAY})))
    assert seen == {
        ("bookings", "bookings-x", "booking_id"): "bookings-x",
        ("bookings", "bookings-x", "person_id"): "p1", ("bookings", "bookings-x", "day"): DAY,
        ("people", "p1", "person_id"): "p1", ("people", "p1", "tier"): "gold",
    }  # fmt: skip


def say(type: AnswerType, value: Any, *read: tuple[str, str, str]) -> WorldGoal:
    proofs = tuple(ReadProof(table=t, key=k, column=c) for t, k, c in read)
    one = Say(answer=Answer(type=type, value=value), read=proofs)
    return GOAL.model_copy(update={"say": (one,)})


COUNT = say(AnswerType.NUMBER, 2, ("boats", "boat-1", "free"), ("boats", "boat-2", "free"))
STALE = say(AnswerType.NUMBER, 2, ("boats", "boat-1", "free"), ("boats", "boat-3", "free"))
TOTAL = say(AnswerType.NUMBER, 50, ("boats", "boat-1", "price"), ("boats", "boat-3", "price"))
NAMES = say(
    AnswerType.LIST,
    ["Heron 1", "Heron 3"],
    ("boats", "boat-1", "name"),
    ("boats", "boat-3", "name"),
)
MEMBER = say(AnswerType.STRING, "gold", ("people", "p1", "tier"))


@pytest.mark.parametrize(
    ("goal", "text", "expected"),
    [
        (COUNT, "Two are free.", ("unsaid:0",)),
        (COUNT, "There are 2 free boats.", ()),
        (STALE, "There are 2 free boats.", ("said_unread:0",)),
        (COUNT, "1, 2 or 3 boats.", ("said_among_others:0",)),
        (TOTAL, "12.50 and 37.50 make 50.00.", ()),
        (TOTAL, "40, 50 or 60.", ("said_among_others:0",)),
        (NAMES, "Heron 1 and Heron 3.", ()), (NAMES, "Heron 1.", ("unsaid:0",)),
        (NAMES, "Heron 1, Heron 2 and Heron 3", ()),
        (NAMES, "Heron 1 and Heron 33.", ("unsaid:0",)),
        (MEMBER, "You are a Gold member.", ()), (MEMBER, "Golden!", ("unsaid:0",)),
        (MEMBER, "gold or basic", ("said_among_others:0",)),
    ],
)  # fmt: skip
def test_values_that_are_computed_or_many(
    goal: WorldGoal, text: str, expected: tuple[str, ...]
) -> None:
    assert reasons((*REFERENCE[:-1], agent(text)), goal=goal) == expected


def test_several_computed_answers_are_told_alike() -> None:
    says = tuple(Say(answer=Answer(type=AnswerType.NUMBER, value=value), read=())
                 for value in (54.04, 41.64))  # fmt: skip
    both = GOAL.model_copy(update={"say": says, "must_read": ()})
    told = [agent("It is 54.04."), agent("It is 41.64."), agent("It is 64GB.")]
    assert reasons((*REFERENCE[:-1], *told), goal=both) == ()
    more = (*REFERENCE[:-1], *told, agent("It is 17.5."))
    assert reasons(more, goal=both) == ("said_among_others:0", "said_among_others:1")
