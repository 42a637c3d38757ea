"""Reading a message of the agent into an act: what it asks of the user, and about which facts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from astra.arena.act_rules import impending
from astra.arena.acts import MessageReading, read_message
from astra.records.qa import QuestionKind
from astra.records.world import (
    AgentAct,
    EventKind,
    FactTime,
    GoalOutcome,
    OutcomeKind,
    TraceEvent,
    UserAct,
    UserFact,
    UserScript,
    World,
    WorldGoal,
    WorldShape,
)
from astra.worlds.domain import load_domains
from astra.worlds.generator import generate

PROPOSE, OFFER, ASK = AgentAct.PROPOSE, AgentAct.OFFER, AgentAct.ASK
REFUSE, REPORT, OTHER = AgentAct.REFUSE, AgentAct.REPORT, AgentAct.OTHER
MESSAGES = Path(__file__).with_name("agent_messages.jsonl")
"""Messages with their acts, as ``read`` takes them."""
OWN = {"own email": "zeno.lund47@post.example"}


@cache
def library() -> World:
    return generate(load_domains()["library_loans"], 0, WorldShape.FULL, 0)


def goal(
    tool: str, arguments: dict[str, Any], opening: dict[str, Any], asked: dict[str, Any],
    words: str, **more: Any,
) -> WorldGoal:  # fmt: skip
    """A goal of one call, whose user says some facts at once and others when asked."""
    facts = [UserFact(slot=k, value=v, when=FactTime.OPENING) for k, v in opening.items()]
    facts += [UserFact(slot=k, value=v, when=FactTime.ASKED) for k, v in asked.items()]
    call = TraceEvent(kind=EventKind.CALL, tool=tool, arguments=arguments)
    stated: dict[str, Any] = {
        "kind": QuestionKind.WRITE, "needs_user": True,
        "trace": (TraceEvent(kind=EventKind.USER, act=UserAct.OPENING, text=words, facts=opening),
                  call),
        "outcome": GoalOutcome(kind=OutcomeKind.DONE),
        "script": UserScript(facts=tuple(facts), turns=(), patience=2, most_turns=10),
    }  # fmt: skip
    return WorldGoal(**{**stated, **more})


GOALS = {
    "days": goal(
        "prolong_loan", {"loan_id": "LN9811", "days": 9}, {**OWN, "loan_id": "LN9811"},
        {"days": 9}, "My email is zeno.lund47@post.example. Please prolong my loan LN9811.",
    ),
    "row": goal(
        "prolong_loan", {"loan_id": "LN9811", "days": 9},
        {**OWN, "days": 9, "loan_id.loan_state": "active"}, {"loan_id.due_date": "2026-10-02"},
        "My email is zeno.lund47@post.example. Please prolong my active loan by 9 days.",
    ),
    "lend": goal(
        "lend_copy",
        {"member_id": "MB3844", "copy_id": "CP4985", "loan_date": "2026-09-04", "days": 12,
         "payment_card_id": "PC3193"},
        {**OWN, "copy_id": "CP4985", "days": 12},
        {"loan_date": "2026-09-04", "payment_card_id": "PC3193"},
        "My email is zeno.lund47@post.example. Please make a loan of copy CP4985 for 12 days.",
    ),
    "why": goal(
        "withdraw_loan", {"loan_id": "LN9811", "reason": "illness"},
        {"loan_id": "LN9811"}, {"reason": "illness", **OWN},
        "Could you cancel my loan LN9811?",
    ),
    "extra": goal(
        "add_extra", {"loan_id": "LN9811", "item": "book_light", "quantity": 2},
        {**OWN, "loan_id": "LN9811"}, {"item": "book_light", "quantity": 2},
        "My email is zeno.lund47@post.example. Add an extra to my loan LN9811, please.",
    ),
}  # fmt: skip


def read(name: str, *said: str) -> MessageReading:
    stated = GOALS[name]
    events = [stated.trace[0]]
    events += [TraceEvent(kind=EventKind.ASSISTANT, text=one) for one in said]
    return read_message(library(), stated, events)


ASKS: list[tuple[str, str, str]] = [
    ("days", "For how many days would you like to extend the loan?", "days"),
    ("days", "How many more days do you need?", "days"),
    ("days", "Could you tell me how long you'd like to keep it?", "days"),
    ("days", "Certainly! Before I proceed, I need to know by how many days the loan should be "
             "extended.", "days"),
    ("days", "Thank you, Zeno. I found your account and the loan **LN9811** (due 2026-10-02).\n\n"
             "Could you please specify the number of days you want it prolonged by?", "days"),
    ("days", "I'd be happy to help you renew your loan! Please provide the number of days.",
     "days"),
    ("days", "Please let me know how many days you would like to add.", "days"),
    ("days", "I can extend that for you. By how many days?", "days"),
    ("days", "How long should I extend it for?", "days"),
    ("days", "To extend your loan I need one more detail:\n- the number of additional days\n\n"
             "Thank you!", "days"),
    ("days", "Which days is it to be?", "days"),
    ("days", "What is your email address?", "own email"),
    ("days", "To get started, could you verify your identity?", "own email"),
    ("days", "Can you confirm the loan ID, please?", "loan_id"),
    ("days", "Which loan would you like to renew?", "loan_id"),
    ("days", "There is no LN9812 on file. Please get back to me with the right number.",
     "loan_id"),
    ("days", "Could you please provide your email address and the number of days?",
     "own email, days"),
    ("days", "Before I can help, I'll need:\n1. Your email\n2. The loan number\n3. How many days "
             "you want", "own email, loan_id, days"),
    ("row", "Which loan do you mean?", "loan_id.loan_state, loan_id.due_date"),
    ("row", "You have several active loans. Which one should I extend?",
     "loan_id.loan_state, loan_id.due_date"),
    ("row", "Could you provide the loan ID?", "loan_id.loan_state, loan_id.due_date"),
    ("row", "What's the due date of the loan you'd like to extend?", "loan_id.due_date"),
    ("lend", "When would you like the loan to start?", "loan_date"),
    ("lend", "What start date would you prefer for the loan?", "loan_date"),
    ("lend", "On which date should the loan begin?", "loan_date"),
    ("lend", "Which payment card would you like to use?", "payment_card_id"),
    ("lend", "How would you like to pay?", "payment_card_id"),
    ("lend", "Sure, I can set that up! I just need two things: the first day of the loan and the "
             "payment card.", "loan_date, payment_card_id"),
    ("why", "May I ask why you want to cancel it?", "reason"),
    ("why", "Could you share the reason for the withdrawal?", "reason"),
    ("why", "I'm sorry to hear that. What is the reason for withdrawing the loan?", "reason"),
    ("why", "I'd be glad to help. May I have your email address, please?", "own email"),
    ("why", "Please provide your email or your full name and postcode so I can find you.",
     "own email"),
    ("extra", "Which item would you like to add, and how many?", "item, quantity"),
    ("extra", "What quantity?", "quantity"),
    ("extra", "How many of them do you want?", "quantity"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "slots"), ASKS)
def test_a_question_asks_for_the_slots_that_it_names_and_no_others(
    name: str, text: str, slots: str
) -> None:
    reading = read(name, text)
    assert (reading.act, ", ".join(sorted(reading.slots))) == (
        ASK, ", ".join(sorted(slots.split(", ")))
    )  # fmt: skip


UNKNOWN = [
    ("days", "What is the title of the book?"),
    ("days", "Could you tell me your phone number?"),
    ("row", "What is your favourite colour?"),
    ("days", "May I have your postcode?"),
    ("lend", "What is your library card's PIN?"),
]


@pytest.mark.parametrize(("name", "text"), UNKNOWN)
def test_what_no_fact_answers_is_asked_for_in_vain(name: str, text: str) -> None:
    assert read(name, text) == MessageReading(ASK, unknown=True)


PROPOSALS: list[tuple[str, str, str, bool]] = [
    ("row", "I am going to use prolong_loan with loan id LN9811, days 9. Do you agree?",
     "loan_id.due_date", True),
    ("row", "I will extend loan LN9811 by 9 days. Shall I go ahead?", "loan_id.due_date", True),
    ("row", "I'll extend loan LN9551 by 9 days now.", "loan_id.due_date", False),
    ("days", "I found your loan LN9811, due 2026-10-02. Would you like me to extend it by 7 days?",
     "days", False),
    ("days", "To confirm: you would like to prolong loan LN9811 by 9 days. Is that correct?",
     "days", True),
    ("days", "Here is what I am about to do:\n- Loan: LN9811\n- Extension: 9 days\n\nPlease reply "
             "\"yes\" to proceed.", "days", True),
    ("days", "May I cancel loan LN9811?", "", False),
    ("days", "Your account is locked. Shall I unlock it first?", "", False),
    ("days", "Just to double-check, do you want me to renew LN9811?", "", True),
    ("days", "Should I proceed with the extension of loan LN9811?", "", True),
    ("why", "I'm going to withdraw loan LN9811 because of illness. Please confirm.", "reason",
     True),
    ("why", "I will now cancel your loan LN9811.", "", True),
    ("why", "Let me cancel that loan for you.", "", True),
    ("lend", "I'll make a loan of copy CP4985 from 2026-09-04 for 12 days, paid with PC3193. Do "
             "you agree?", "loan_date, payment_card_id", True),
    ("lend", "I'd like to book copy CP4985 for you starting 2026-09-05 for 12 days. Is that okay?",
     "loan_date", False),
    ("extra", "I'm adding 2 book lights to your loan LN9811 now.", "item, quantity", True),
    ("extra", "Would you like me to go ahead and add a gift wrap to LN9811?", "item", False),
    ("days", "Could you confirm that you want to renew loan LN9811?", "", True),
    ("days", "I can renew loan LN9811. Would you like to proceed?", "", True),
    ("days", "LN9811 would be due on 2026-10-11. If you agree, I'll make the change.", "", True),
    ("days", "There's no LN9812. Did you mean LN9551? If so, I'd extend that one.", "loan_id",
     False),
    ("days", "Cancelling loan LN9811 now.", "", False),
    ("days", "Extending LN9811 by 9 days...", "days", True),
    ("days", "I'll make it 9 more days for LN9811 if you give me the go-ahead.", "days", True),
    ("days", "So LN9811 would be due on 2026-10-11 instead of 2026-10-02. Is that right?", "",
     True),
    ("days", "Do I have your approval?", "", True),
    ("days", "LN9811 it is. Proceeding.", "", True),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "slots", "wanted"), PROPOSALS)
def test_a_proposal_is_of_what_is_wanted_or_of_something_else(
    name: str, text: str, slots: str, wanted: bool
) -> None:
    reading = read(name, text)
    assert (reading.act, ", ".join(sorted(reading.slots)), reading.wanted) == (
        PROPOSE, slots, wanted
    )  # fmt: skip


OFFERS: list[tuple[str, str, str]] = [
    ("row", "Which one do you mean: LN5624 or LN9811?", "loan_id.due_date, loan_id.loan_state"),
    ("row", "I found two active loans:\n\n1. **LN9811**: due 2026-10-02\n2. **LN6247**: due "
            "2026-09-21\n\nWhich one would you like me to extend?",
     "loan_id.due_date, loan_id.loan_state"),
    ("row", "Do you mean the one due on 2 October 2026 or the one due on 21 September 2026?",
     "loan_id.due_date, loan_id.loan_state"),
    ("why", "Is the reason illness, a move, or a wrong title?", "reason"),
    ("why", "Please choose a reason: illness, moved_away, wrong_title, changed_mind.", "reason"),
    ("days", "I can either extend the loan or cancel it. What would you prefer?", ""),
    ("days", "Would you like 7 days or 14 days?", "days"),
    ("lend", "You have two payment cards on file: PC3193 and PC5348. Which would you like to use?",
     "payment_card_id"),
    ("extra", "We have gift wrap, a book light and a carry case. Which would you like?", "item"),
    ("days", "Would you like me to extend it or cancel it?", ""),
    ("lend", "Quick check: pay with PC3193 or with PC5348?", "payment_card_id"),
    ("days", "Do you want me to cancel the first or the second?", ""),
    ("why", "Is this because you moved away, or because it's the wrong title?", "reason"),
    ("days", "Is the light broken on the whole shelf or just at one desk?", ""),
    ("days", "I can't renew it. What I *can* do:\n• cancel the loan\n• add an extra\n\nWould "
             "either of those help?", ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "slots"), OFFERS)
def test_options_are_offered(name: str, text: str, slots: str) -> None:
    reading = read(name, text)
    assert (reading.act, ", ".join(sorted(reading.slots))) == (OFFER, slots)


PLAIN: list[tuple[AgentAct, str]] = [
    (REFUSE, "I am sorry, but I cannot do that."),
    (REFUSE, "Unfortunately, loan LN9811 is overdue and can't be extended. Is there anything else "
             "I can help you with?"),
    (REFUSE, "I'm afraid our policy does not allow this."),
    (REFUSE, "I have declined your request because the loan was renewed twice before."),
    (REFUSE, "I'm going to hand this over to a colleague."),
    (REFUSE, "I have passed your complaint on to a colleague who will contact you."),
    (REFUSE, "I am sorry, I have no tool for that at the moment."),
    (REFUSE, "I don't have access to a function that changes the branch."),
    (REFUSE, "A colleague is going to see to this."),
    (REPORT, "All of that is done."),
    (REPORT, "Your loan LN9811 has been extended by 9 days. The new due date is 2026-10-11. Is "
             "there anything else I can help you with?"),
    (REPORT, "I've gone ahead and renewed it."),
    (REPORT, "Done! ✅ Let me know if you need anything else."),
    (REPORT, "The fee is 60."),
    (REPORT, "I found your account, Zeno. You have 10 loans."),
    (REPORT, "Here are your loans:\n- LN9811: active\n- LN6247: active"),
    (REPORT, "Great news! The extension was successful."),
    (OTHER, "Hello! How can I help you today?"),
    (OTHER, "Let me look that up for you."),
    (OTHER, "One moment, please."),
    (OTHER, "I will check your account first."),
    (OTHER, "Thank you for providing your email."),
    (OTHER, "You're welcome! Have a great day!"),
    (OTHER, "Is there anything else I can help you with?"),
    (OTHER, ""),
    (OTHER, "  \n "),
    (OTHER, "Sure, I'd be happy to help with that."),
    (OTHER, "<think>I should ask for how many days."),
    (OTHER, '{"name": "list_loans", "arguments": {"member_id": "MB3844"}}'),
    (OTHER, "Please prolong my loan LN9811."),
    (OTHER, "Shall I look up your loans?"),
    (OTHER, "\x00\x01\x02 \ufffd"),
    (OTHER, "好的，请稍等。"),
    (OTHER, "loan loan loan loan loan"),
    (OTHER, 'list_loans({"member_id": "MB3844", "loan_state": "act'),
    (OTHER, "prolong_loan(loan_id=LN9811, days=9)"),
    (OTHER, "I understand you'd like to renew LN9811. I'm looking into whether that's possible."),
    (REFUSE, "I'm going to transfer this to them as a complaint."),
    (OTHER, "Your loan is the kind of thing that people have renewed."),
    (OTHER, "You have the right to a loan with an extra."),
    (OTHER, "I have no access to your loans until I have verified you."),
    (OTHER, "You could say \"I renewed the loan\" to the member."),
    (OTHER, "Pick all the loans with 0 days, then renew those."),
    (OTHER, "While you're at it, could you also renew my library loans?"),
    (REFUSE, "I am not allowed to renew loans without identifying the member."),
    (REPORT, "It's extended. Would you also like to know about LN9551?"),
]  # fmt: skip


@pytest.mark.parametrize(("act", "text"), PLAIN)
def test_refusals_reports_and_the_rest(act: AgentAct, text: str) -> None:
    assert read("days", text) == MessageReading(act)


@pytest.mark.parametrize(
    ("refuses", "text"),
    [
        (True, "I cannot extend a loan. Do you want to keep it as it is, or shall I return it?"),
        (True, "There is no tool for that here, sorry. Would you rather return LN9811 or LN9551?"),
        (False, "For how many days?"),
        (False, "I will renew LN9811 by 3 days. Shall I go ahead?"),
        (False, "Which loan do you mean, LN9811 or LN9551?"),
    ],
)
def test_what_is_refused_beside_a_question_is_read_too(refuses: bool, text: str) -> None:
    reading = read("days", text)
    assert (reading.act in (ASK, OFFER, PROPOSE), reading.refuses) == (True, refuses)


@pytest.mark.parametrize("line", MESSAGES.read_text().splitlines())
def test_messages_as_agents_write_them(line: str) -> None:
    said = json.loads(line)
    assert read(said["goal"], said["text"]).act == said["act"]


def test_messages_since_the_last_turn_of_the_user_are_read_together() -> None:
    assert read("days", "The loan is active.", "How many days?") == MessageReading(ASK, ("days",))


def test_nothing_said_is_other() -> None:
    assert read_message(library(), GOALS["days"], []) == MessageReading(OTHER)


LISTED = (
    "You have two loans:\n- **LN8141**\n  - Status: the copy is on loan\n- **LN2022**\n"
    "  - Status: the copy is on loan\nWhich one would you like me to renew?"
)


def test_two_rows_of_a_list_may_say_the_same() -> None:
    assert read("days", LISTED).act is OFFER
    assert read("days", "I will look at the loan now. " * 3).act is OTHER


def test_a_verb_keeps_its_own_letters() -> None:
    assert impending("collecting the open balance now") == ["collecting"]


def test_what_is_not_read_of_a_long_proposal_is_of_nothing_else() -> None:
    """The middle of a message that is too long, which names another tool, counts for nothing."""
    asked = "May I prolong loan LN9811 by 9 days?"
    filler = "\n".join(f"The library kept it on shelf {at} for years." for at in range(120))
    long = f"{filler}\nMay I cancel loan LN9811 with withdraw_loan?\n{filler}\n{asked}"
    assert read("days", asked) == read("days", long)


@pytest.mark.parametrize("part", [
    "a ", "? ", "how many ", "I will ", "- x\n", "(", "* ", "which one or ", "1. ", "either or ",
    "LN9811 or ", "`", "<think>", "please confirm the ", "is that the ", "{[", "é́",
    "function ", "once done ", "the loan is so\n", "could you renew the loan? ", "[name",
    "tool ", "1_a", "let me do ", "reached ", "one of: a ", "if you ", "the extension ",
])  # fmt: skip
def test_a_huge_message_is_read_in_bounded_time(part: str) -> None:
    """A second where a million squares take 0.04; a slower machine has longer."""

    def took(work: Callable[[], object]) -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    yardstick = took(lambda: sum(number * number for number in range(1_000_000)))
    assert took(lambda: read("days", part * (100_000 // len(part)))) < 25 * yardstick
