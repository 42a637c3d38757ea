"""What counts as told: phrasings of a right answer, and messages that only look like one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from world_samples import column, offer, table, yard

from astra.arena.verdict import judge
from astra.records.qa import Answer, AnswerType, QuestionKind
from astra.records.state import Row, Tables
from astra.records.world import (
    ColumnType,
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

LOANS: list[Row] = [
    {"loan_id": "LN1", "title": "Emma", "lent": "2026-09-13", "due": "2026-09-25", "renewals": 1,
     "state": "active"},
    {"loan_id": "LN2", "title": "Dune", "lent": "2026-09-02", "due": "2026-10-01", "renewals": 0,
     "state": "overdue"},
    {"loan_id": "LN3", "title": "Persuasion", "lent": "2026-09-05", "due": "2026-10-03",
     "renewals": 2, "state": "returned"},
]  # fmt: skip
SHAPE = table("loans", "loan_id", column("loan_id", ColumnType.ID), column("title"),
              column("lent", ColumnType.DATE), column("due", ColumnType.DATE),
              column("renewals", ColumnType.INTEGER), column("state", ColumnType.ENUM))  # fmt: skip
LIST = offer("list_loans", "", ToolRole.LIST, (),
             {"loans": ("loan_id", "title", "lent", "due", "renewals", "state")})  # fmt: skip
RENEW = offer("renew_loan", "", ToolRole.EXTEND, ("loans",), {})
BASE = yard()
WORLD = yard((LIST, RENEW), tables=(SHAPE, *BASE.tables), rows={**BASE.rows, "loans": LOANS},
             rules=())  # fmt: skip
RENEWED: Row = {**LOANS[0], "renewals": 2, "due": "2026-10-09"}


def user(text: str, act: UserAct = UserAct.OPENING) -> TraceEvent:
    return TraceEvent(kind=EventKind.USER, text=text, act=act)


def agent(text: str) -> TraceEvent:
    return TraceEvent(kind=EventKind.ASSISTANT, text=text)


def call(tool: str, result: object = None, *changes: RowChange) -> TraceEvent:
    return TraceEvent(kind=EventKind.CALL, tool=tool, result=result, changes=changes)


READ = call("list_loans", LOANS)
WRITE = call("renew_loan", "done", RowChange(table="loans", key="LN1", row=RENEWED))
AGAIN = call("list_loans", [RENEWED, *LOANS[1:]])


def goal(column: str, *keys: str, rows: Sequence[Row] = LOANS) -> WorldGoal:
    """Whoever asks for the column of these loans."""
    kind = {"due": AnswerType.DATE, "renewals": AnswerType.NUMBER, "state": AnswerType.ENUM,
            "title": AnswerType.STRING}[column]  # fmt: skip
    cells = {row["loan_id"]: row[column] for row in rows}
    says = tuple(
        Say(answer=Answer(type=kind, value=cells[key]),
            read=(ReadProof(table="loans", key=key, column=column),))
        for key in keys
    )  # fmt: skip
    return WorldGoal(kind=QuestionKind.READ_ONLY, trace=(), say=says,
                     outcome=GoalOutcome(kind=OutcomeKind.DONE))  # fmt: skip


def faults(
    goal: WorldGoal, *trace: TraceEvent, opening: str = "What of my loan LN1?"
) -> tuple[str, ...]:
    rows: Tables = {**WORLD.rows}
    found = judge(WORLD, goal, (user(opening), *trace), rows).reasons
    return tuple(reason for reason in found if "said" in reason)


DUE, RENEWALS, STATE = goal("due", "LN1"), goal("renewals", "LN1"), goal("state", "LN1")


@pytest.mark.parametrize(
    "text",
    [
        "It is due on 2026-09-25.",
        "**Due:** _2026-09-25_",
        "**Due date**: `2026-09-25`",
        "| Loan | Due |\n|---|---|\n| LN1 | 2026-09-25 |",
        "Your loan is due back on September 25th, 2026. Have a nice day!",
        "You'll need to return it by Friday, 25 September 2026.",
        "The 25th of September, 2026 is the day.",
        "It's due Sept. 25, 2026.",
        "It is due on 25.09.2026.",
        "Due: 2026‑09‑25",
        "*Emma* (LN1) is due on **25 September 2026** - anything else?",
        "Lent on 2026-09-13, it is due back on 2026-09-25.",
        "It isn't due until 2026-09-25.",
        "You don't have to bring it back before 2026-09-25.",
        "It must be back no later than 2026-09-25.",
        "It is not 2026-10-01 but 2026-09-25.",
        "It is due on 2026-09-25, not on 2026-10-01.",
        "Not the 2026-10-01: it is due on 2026-09-25.",
        "The copy that you have not returned is due on 2026-09-25.",
        "It has not been renewed since, and is due on 2026-09-25.",
        "LN1: due 2026-09-25\nLN2: due 2026-10-01\nLN3: due 2026-10-03",
        "- **LN1**\n  - due 2026-09-25\n- **LN2**\n  - due 2026-10-01\n- **LN3**\n"
        "  - due 2026-10-03",
        "LN1 is due on 2026-09-25, LN2 on 2026-10-01 and LN3 on 2026-10-03.",
        "Emma is due on 2026-09-25. Dune is due on 2026-10-01. Persuasion: 2026-10-03.",
        "You have three loans, due on 2026-09-25, 2026-10-01 and 2026-10-03.\n\n"
        "The one that you ask about is due on 2026-09-25.",
        "Your other loan is due on 2026-10-01. This one is due on 2026-09-25.",
        "It is due on 2026-09-25, or you can renew it until 2026-10-01 if you like.",
        "It is due on 2026-09-25 (25 September 2026).",
        "Due [2026-09-25](https://lib.example/due?day=2026-10-01).",
        "~~2026-10-01~~ 2026-09-25",
        "<b>2026-09-25</b> is the due date.",
        "1. I found your loan.\n2. It is due on 2026-09-25.",
        "Is there anything else? It is due on 2026-09-25.",
        "I have checked: 2026-09-25; shall I renew it?",
    ],
)
def test_a_date_is_told(text: str) -> None:
    assert faults(DUE, READ, agent(text)) == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is certainly not due on 2026-09-25.", "unsaid:0"),
        ("It isn't due on 2026-09-25.", "unsaid:0"),
        ("I do not think that it is due on 2026-09-25.", "unsaid:0"),
        ("2026-09-25 is not the due date.", "unsaid:0"),
        ("2026-09-25 is wrong.", "unsaid:0"),
        ("Is it due on 2026-09-25?", "unsaid:0"),
        ("~~2026-09-25~~", "unsaid:0"),
        ("LN2 is due on 2026-09-25.", "unsaid:0"),
        ("See [this](https://lib.example/2026-09-25).", "unsaid:0"),
        ("It is due on 2026-10-01, or perhaps on 2026-09-25.", "said_among_others:0"),
        ("It is either 2026-09-25 or 2026-10-01.", "said_among_others:0"),
        ("2026-09-25 / 2026-10-01", "said_among_others:0"),
        ("It is due on 2026-09-25. It is due on 2026-10-01.", "said_among_others:0"),
        ("It is due on 2026-09-25, but could be due on 2026-10-01.", "said_among_others:0"),
        ("LN1 is due on 2026-09-25, 2026-10-01.", "said_among_others:0"),
        ("2026-09-25, 2026-10-01, 2026-10-03", "said_among_others:0"),
    ],
)
def test_a_date_that_is_not_told(text: str, expected: str) -> None:
    assert faults(DUE, READ, agent(text)) == (expected,)


@pytest.mark.parametrize(
    "hedge",
    [
        "You may say that it is {}.", "I might say that it is {}.", "If it is this one it is {}.",
        "Once it is checked it is {}.", "In case you want to know it is {}.",
        "Another loan is {}.", "The other loan is {}.", "The remaining loan is {}.",
    ],
)  # fmt: skip
@pytest.mark.parametrize("column", ["due", "renewals", "state"])
@pytest.mark.parametrize("apart", [False, True], ids=["one message", "a message each"])
def test_who_hedges_over_all_candidates_tells_none(hedge: str, column: str, apart: bool) -> None:
    lead = {"due": "due on ", "renewals": "renewed, renewals: ", "state": ""}[column]
    said = [hedge.format(f"{lead}{row[column]}") for row in LOANS]
    talk = [agent(text) for text in said] if apart else [agent(" ".join(said))]
    for row in LOANS:
        asked = goal(column, row["loan_id"])
        assert faults(asked, READ, *talk, opening="What of my loan?") == ("said_among_others:0",)


@pytest.mark.parametrize(
    "text",
    [
        "As you can see, it is due on 2026-09-25. The other loan is due on 2026-10-01.",
        "You can keep it until 2026-09-25.",
        "You may keep it until 2026-09-25; you may keep Dune until 2026-10-01.",
        "It is due on 2026-09-25. If you renew it you may keep it until 2026-10-03.",
        "If you want to know, it is due on 2026-09-25.",
    ],
)
def test_one_value_told_in_careful_words_is_told(text: str) -> None:
    assert faults(DUE, READ, agent(text), opening="When is my loan Emma due?") == ()


def test_as_you_can_see_claims() -> None:
    seen = agent("As you can see, it is due on 2026-10-01.")
    right = agent("It is due on 2026-09-25.")
    assert faults(DUE, READ, seen, right) == ("said_among_others:0",)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("state", ["We have an active catalogue, overdue fines, and returned books."]),
        ("state", ["All active loans, all overdue loans and all returned loans are listed."]),
        ("renewals", ["Loans: 0.", "Loans: 1.", "Loans: 2."]),
        ("renewals", [f"The title of your loan was lent {n} times." for n in range(3)]),
        ("due", [f"Loan {row['loan_id']} is due on {row['due']}." for row in LOANS]),
        ("due", ["\n".join(f"{row['loan_id']}: {row['due']}" for row in LOANS * 2)]),
        ("due", ["\n".join(f"{row['loan_id']}: {row['due']}" for row in LOANS)] * 2),
    ],
)
def test_stray_values_and_lists_of_all_rows_tell_none(column: str, said: list[str]) -> None:
    """By one who has not met the rules: paid whichever row was meant."""
    talk = [agent(text) for text in said]
    for row in LOANS:
        asked = goal(column, row["loan_id"])
        assert faults(asked, READ, *talk, opening="What of my loan?") == ("said_among_others:0",)


def test_a_list_and_the_row_once_more_answers() -> None:
    listed = [agent(f"Loan {row['loan_id']} is due on {row['due']}.") for row in LOANS]
    again = agent("So yours, LN1, is due on 2026-09-25.")
    assert faults(DUE, READ, *listed, again, opening="When is my loan due?") == ()


def test_values_are_counted_over_all_messages() -> None:
    right, wrong = agent("It is due on 2026-09-25."), agent("It is due on 2026-10-01.")
    listed = agent("LN1: 2026-09-25\nLN2: 2026-10-01\nLN3: 2026-10-03")
    assert faults(DUE, READ, right, wrong) == ("said_among_others:0",)
    assert faults(DUE, READ, wrong, right) == ("said_among_others:0",)
    assert faults(DUE, READ, listed, right) == ()
    assert faults(DUE, READ, right, right) == ()


def test_a_list_answers_who_named_the_row() -> None:
    listed = agent("LN1: 2026-09-25\nLN2: 2026-10-01\nLN3: 2026-10-03")
    right = agent("Emma is due on 2026-09-25.")
    words = "When is the first of my loans due?"
    assert faults(DUE, READ, listed) == ()
    assert faults(DUE, READ, listed, opening=words) == ("said_among_others:0",)
    assert faults(DUE, READ, listed, right, opening=words) == ()


def test_all_that_was_asked_may_be_told() -> None:
    both = goal("due", "LN1", "LN2")
    one, other = agent("The due date is 2026-09-25."), agent("The due date is 2026-10-01.")
    assert faults(both, READ, one, other) == ()
    assert faults(both, READ, one) == ("unsaid:1",)
    third = agent("The due date is 2026-10-03.")
    told = faults(both, READ, one, other, third)
    assert told == ("said_among_others:0", "said_among_others:1")
    asked = "Is LN1 due on 2026-10-01?"
    echo = agent("You asked for 2026-10-01. It is due on 2026-09-25.")
    assert faults(DUE, READ, echo, opening=asked) == ()


@pytest.mark.parametrize(
    "text",
    [
        "The renewals is 1.", "It has been renewed 1 time.", "Renewals: **1**",
        "You have 2 loans. The first has 1 renewal.", "Renewals so far: 1 (of 3 allowed).",
        "It was renewed 1 time; your other loan LN3 was renewed 2 times.",
        "LN1 has 1 renewal, LN3 has 2.",
    ],
)  # fmt: skip
def test_a_number_is_told(text: str) -> None:
    assert faults(RENEWALS, READ, agent(text)) == ()


def test_counting_up_tells_no_number() -> None:
    said = [agent(f"The renewals is {number}.") for number in range(4)]
    assert faults(RENEWALS, READ, *said) == ("said_among_others:0",)
    assert faults(RENEWALS, READ, agent("It is 0."), agent("It is 1.")) == ("said_among_others:0",)
    assert faults(RENEWALS, READ, agent("You have 1 loan.")) == ("unsaid:0",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Your loan is active.", ()), ("Status: *Active*", ()), ("It is still active.", ()),
        ("It is active and not overdue.", ()), ("It's active, no longer returned.", ()),
        ("You returned LN3. LN1 is active.", ()),
        ("It is active. Once it is returned, I can close it.", ()),
        ("LN1 is active; LN2 is overdue; LN3 is returned.", ()),
        ("It is not active.", ("unsaid:0",)), ("It isn't active anymore.", ("unsaid:0",)),
        ("It is active or overdue.", ("said_among_others:0",)),
        ("It is active. It is overdue.", ("said_among_others:0",)),
        ("It is inactive.", ("unsaid:0",)),
    ],
)  # fmt: skip
def test_a_state_is_told(text: str, expected: tuple[str, ...]) -> None:
    assert faults(STATE, READ, agent(text)) == expected


def test_a_value_is_the_cell_as_it_is() -> None:
    after = goal("renewals", "LN1", rows=[RENEWED])
    before, new = agent("The renewals is 1."), agent("The renewals is 2.")
    assert faults(after, READ, WRITE, AGAIN, new) == ()
    assert faults(after, READ, new, WRITE, AGAIN) == ("said_unread:0",)  # not yet
    assert faults(after, READ, WRITE, new) == ("said_unread:0",)  # what was read is stale
    assert faults(after, READ, before, WRITE, AGAIN, new) == ()
    assert faults(after, READ, WRITE, AGAIN, agent("It was renewed 1 time before, now 2.")) == ()
    assert faults(after, READ, WRITE, AGAIN, before, new) == ("said_among_others:0",)
    assert faults(RENEWALS, READ, WRITE, AGAIN, before) == ("said_unread:0",)  # no longer
