"""Goals spoiled by somebody who read what a goal promises, not how it is proved; and changes
beside them that spoil nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from goal_samples import changed_event, other, place
from second_strangers import (
    Bench,
    Benches,
    Q,
    Right,
    Spoil,
    Spoilt,
    T,
    benches,
    call,
    on,
    party,
    reworded,
    uses,
    wishes_for,
    with_arguments,
)

from astra.records.world import (
    GoalOutcome,
    GoalTrait,
    OutcomeKind,
    Provenance,
    ReadProof,
    Say,
    ValueSource,
    WorldGoal,
)
from astra.sandbox.local import LocalSandbox


@pytest.fixture(scope="module")
def bench(sandbox: LocalSandbox) -> Iterator[Benches]:
    with benches(sandbox) as of:
        yield of


def no_ledger(table: str) -> Spoil:
    return lambda _, goal: other(goal, effect=tuple(w for w in goal.effect if w.table != table))


def no_counter(_: Bench, goal: WorldGoal) -> WorldGoal:
    effect = tuple(w.model_copy(update={"values": {
        name: value for name, value in w.values.items() if name != "prolongations"}})
        for w in goal.effect)  # fmt: skip
    assert effect != goal.effect
    return other(goal, effect=effect)


def ends(kind: OutcomeKind, reason: str = "") -> Spoil:
    return lambda _, goal: other(goal, outcome=GoalOutcome(kind=kind, reason=reason))


def ends_so(tool: str, kind: OutcomeKind, reason: str) -> Spoil:
    """Another reason, in the outcome and in the call."""
    return lambda here, goal: with_arguments(ends(kind, reason)(here, goal), tool, reason=reason)


def more_days(here: Bench, goal: WorldGoal) -> WorldGoal:
    """Another number of days than the user's, in call, words of the agent and effect."""
    told = goal.trace[call(goal, "prolong_hire")].arguments
    days = 13 if told["days"] != 13 else 14
    new = reworded_agent(with_arguments(goal, "prolong_hire", days=days), told["days"], days)
    return other(new, effect=here.effect(("prolong_hire", {**told, "days": days})))


def reworded_agent(goal: WorldGoal, old: object, new: object) -> WorldGoal:
    return other(goal, trace=tuple(
        e.model_copy(update={"text": e.text.replace(f"days {old}", f"days {new}")})
        if e.kind == "assistant" else e for e in goal.trace))  # fmt: skip


def source(tool: str, name: str, **where: Any) -> Spoil:
    def spoil(_: Bench, goal: WorldGoal) -> WorldGoal:
        at = call(goal, tool)
        told = {**goal.trace[at].provenance, name: Provenance(**where)}
        return changed_event(goal, at, provenance=told)

    return spoil


def running_still(here: Bench, goal: WorldGoal) -> WorldGoal:
    """Satisfied is a wish about a loan of theirs that is active."""
    old = goal.say[0].read[0].key
    new = next(row["loan_id"] for row in party(here, goal, "loans", old)
               if row["loan_state"] == "active")  # fmt: skip
    cell = ReadProof(table="loans", key=new, column="loan_state")
    answer = goal.say[0].answer.model_copy(update={"value": "active"})
    told = reworded(goal, old, new, meant={"loan_id": new}, loan_id=new)
    told = changed_event(told, len(told.trace) - 1, text="The loan state is active.")
    return other(told, say=(Say(answer=answer, read=(cell,)),), must_read=(cell,))


def other_proof(here: Bench, goal: WorldGoal) -> WorldGoal:
    """The answer counts as read in another row of the party."""
    cell = goal.say[0].read[0]
    rows = party(here, goal, cell.table, cell.key)
    key = next(iter(rows[0]))
    twin = next(row for row in rows if row[key] != cell.key)
    new = cell.model_copy(update={"key": twin[key]})
    return other(goal, say=(goal.say[0].model_copy(update={"read": (new,)}),), must_read=(new,))


def unread(here: Bench, goal: WorldGoal) -> WorldGoal:
    row = here.world.rows["works"][0]
    cell = ReadProof(table="works", key=row["work_id"], column="title")
    return other(goal, must_read=(*goal.must_read, cell))


def without(*traits: GoalTrait) -> Callable[[Spoil], Spoil]:
    """The goal spoilt, and without traits that it has no more."""
    return lambda spoil: (
        lambda here, goal: other(
            spoil(here, goal), traits=tuple(t for t in goal.traits if t not in traits)
        )
    )


def of_other_table(here: Bench, goal: WorldGoal) -> WorldGoal:
    """The loan is named by what no tool shows of a loan."""
    old = goal.references[0]
    loan = next(r for r in here.world.rows["loans"] if r["loan_id"] == old.key)
    copy = next(r for r in here.world.rows["copies"] if r["copy_id"] == loan["copy_id"])
    (name, value), *_ = old.where.items()
    words = f"with {name.replace('_', ' ')} {str(value).replace('_', ' ')}"
    new = reworded(goal, words, f"with format {copy['format']}")
    facts = {n: v for n, v in new.trace[0].facts.items() if not n.startswith("loans.")}
    new = changed_event(new, 0, facts={**facts, "loans.format": copy["format"]})
    return other(new, references=(old.model_copy(update={"where": {"format": copy["format"]}}),))


def other_row(tool: str, table: str, state: str, *, own: bool) -> Spoil:
    """The call takes another open contract than the user's words name."""

    def spoil(here: Bench, goal: WorldGoal) -> WorldGoal:
        told = goal.trace[call(goal, tool)].arguments
        name = next(iter(here.world.rows[table][0]))
        mine = party(here, goal, table, told[name])
        key = next(r[name] for r in here.world.rows[table] if (r in mine) is own
                   and state in r.values() and r[name] != told[name])  # fmt: skip
        new = with_arguments(goal, tool, **{name: key})
        trace = tuple(e.model_copy(update={"text": e.text.replace(told[name], key)})
                      if e.kind == "assistant" else e for e in new.trace)  # fmt: skip
        return other(new, trace=trace, effect=here.effect((tool, {**told, name: key})))

    return spoil


def dropped_say(_: Bench, goal: WorldGoal) -> WorldGoal:
    return other(goal, say=(), must_read=())


def more_reads(name: str) -> Spoil:
    """One more look at what is there already."""

    def spoil(_: Bench, goal: WorldGoal) -> WorldGoal:
        at = call(goal, name)
        events: Iterable[Any] = (*goal.trace[: at + 1], goal.trace[at], *goal.trace[at + 1 :])
        moved = tuple(e.model_copy(update={"provenance": {
            n: p.model_copy(update={"at": p.at + (p.at > at)}) for n, p in e.provenance.items()}})
            for e in events)  # fmt: skip
        references = tuple(r.model_copy(update={"at": r.at + (r.at > at)})
                           for r in goal.references)  # fmt: skip
        return other(goal, trace=moved, references=references)

    return spoil


def said_words(text: str) -> Spoil:
    """More words at the start of the opening."""
    return lambda _, goal: changed_event(
        goal, 0, text=text.format(answer=goal.say[0].answer.value if goal.say else "")
        + goal.trace[0].text)  # fmt: skip


def other_key(here: Bench, goal: WorldGoal) -> WorldGoal:
    """The words name another loan of theirs, the facts do not."""
    key = goal.trace[call(goal, "withdraw_loan")].arguments["loan_id"]
    twin = next(r["loan_id"] for r in party(here, goal, "loans", key) if r["loan_id"] != key)
    return reworded(goal, key, twin)


def other_tool_is_late(_: Bench, goal: WorldGoal) -> WorldGoal:
    at = place(goal, lambda event: event.act == "tool")
    return other(changed_event(goal, at, adds_tools=("list_extras",)), withheld=("list_extras",))


def days_wished(text: int, wish: int) -> Spoil:
    """A forbidden wish for other days, in the words and in the call."""

    def spoil(_: Bench, goal: WorldGoal) -> WorldGoal:
        event = goal.wish[0]
        old = event.arguments["days"]
        call = event.model_copy(update={"arguments": {**event.arguments, "days": wish}})
        new = reworded(goal, f"by {old} days", f"by {text} days", meant={"days": wish}, days=text)
        return other(new, wish=(call,))

    return spoil


def other_days(here: Bench, goal: WorldGoal) -> WorldGoal:
    """Another number of days in all places."""
    old = goal.trace[call(goal, "prolong_hire")].arguments["days"]
    new = more_days(here, goal)
    days = new.trace[call(new, "prolong_hire")].arguments["days"]
    return reworded(new, f"by {old} days", f"by {days} days", meant={"days": days}, days=days)


def last_words(_: Bench, goal: WorldGoal) -> WorldGoal:
    return changed_event(goal, len(goal.trace) - 1, text="That is done. Anything else?")


def yes(_: Bench, goal: WorldGoal) -> WorldGoal:
    return changed_event(goal, place(goal, lambda e: e.act == "confirm"), text="Go ahead, please.")


def same(_: Bench, goal: WorldGoal) -> WorldGoal:
    return goal


def gold(**fields: Any) -> Spoil:
    return lambda _, goal: other(goal, **fields)


DONE, DECLINED, HANDED = OutcomeKind.DONE, OutcomeKind.DECLINED, OutcomeKind.HANDED_OVER
withdraw, prolong = uses("withdraw_loan"), uses("prolong_hire")


def named(goal: WorldGoal) -> bool:
    return withdraw(goal) and "loan_id" in goal.trace[0].facts


def dated(goal: WorldGoal) -> bool:
    return [said.read[0].column for said in goal.say] == ["due_date"]


def forbidden_by(rule: str) -> Right:
    return lambda goal: goal.violates == rule


long, late = forbidden_by("extend_length"), forbidden_by("cancel_window")
W, READ, NO = Q.WRITE, Q.READ_ONLY, Q.FORBIDDEN
FAULTS: dict[str, Spoilt] = {
    "a ledger row is left out": on("rental", W, no_ledger("postings"), right=uses("begin_hire")),
    "a paid sum is left out": on("museum", W, no_ledger("till_records"),
                                 right=uses("collectBalanceOwed")),
    "a counter is left out": on("rental", W, no_counter, right=prolong),
    "another rule's reason": on("permits", NO, ends_so("decline_request", DECLINED,
                                                       "not_identified")),
    "what is forbidden is done": on("library", NO, ends(DONE)),
    "other days than the user's": on("rental", W, more_days, right=prolong),
    "learned later": on("rental", W, source("prolong_hire", "days", source=ValueSource.USER, at=99),
                        right=prolong),
    "learned from a document": on("rental", W, without(T.CROSS_TURN)(source(
        "prolong_hire", "hire_id", source=ValueSource.DOCUMENT)), right=prolong),
    "not satisfied": on("library", Q.ALREADY_SATISFIED, running_still,
                        right=lambda g: g.say[0].read[0].column == "loan_state"),
    "read in another row": on("library", READ, other_proof, right=dated),
    "to be read where nothing shows it": on("library", READ, unread),
    "a candidate is left out": on("library", W, lambda _, g: other(g, candidates=g.candidates[:1]),
                                  T.CHOICE, right=withdraw),
    "named by another table": on("library", W, of_other_table, T.IMPLICIT,
                                 right=lambda g: withdraw(g) and bool(g.references)),
    "both versions end alike": on("library", W, same, T.CHANGES_MIND, proved=False,
                                  right=withdraw),
    "another tool is late": on("library", Q.MISSING_TOOL, other_tool_is_late, T.LATE_TOOL,
                               right=lambda g: withdraw(g) and T.LATE_TOOL in g.traits),
    "another permit of theirs": on("permits", W, other_row(
        "rescind_permit", "permits", "in_force", own=True), right=uses("rescind_permit")),
    "a rule that is kept": on("library", NO, gold(violates="extend_limit"), right=long),
    "words and facts differ": on("library", W, other_key, right=named),
    "there is a tool for it": on("library", Q.MISSING_TOOL, same, judged="alias",
                                 right=wishes_for("withdraw_loan")),
    "a question that nobody answers": on("library", Q.MIXED, dropped_say, right=withdraw),
    "the user knows the answer": on("library", READ, said_words("I think it is {answer}. "),
                                    right=dated),
    "other days are wished": on("library", NO, days_wished(20, 22), right=long),
}  # fmt: skip
TWINS: dict[str, Spoilt] = {
    "good day": on("library", W, said_words("Good day to you. "), right=named),
    "one more look": on("library", READ, more_reads("list_loans"), right=dated),
    "facts in another order": on("rental", W, lambda _, g: changed_event(
        g, 0, facts=dict(reversed(g.trace[0].facts.items()))), right=prolong),
    "effects in another order": on("rental", W, lambda _, g: other(g, effect=g.effect[::-1]),
                                   right=uses("begin_hire")),
    "other last words": on("museum", W, last_words, right=uses("collectBalanceOwed")),
    "other days in all places": on("rental", W, other_days, right=prolong),
    "more days are wished": on("library", NO, days_wished(23, 23), right=long),
    "another way to agree": on("library", W, yes, T.CHOICE, right=withdraw),
    "no way round": on("library", NO, same, right=late, judged="governed alias"),
    "the words of the mind changed": on("library", W, same, T.CHANGES_MIND,
                                        right=uses("prolong_loan")),
    "read once more in the small world": on("permits", W, more_reads("permits_of_applicant"),
                                            right=uses("rescind_permit")),
    "a polite no": on("library", NO, lambda _, g: changed_event(
        g, len(g.trace) - 1, text="I would if I could. The rules do not allow it."), right=long),
}  # fmt: skip


@pytest.mark.parametrize("spoilt", FAULTS.values(), ids=FAULTS)
def test_a_spoiled_goal_is_rejected(spoilt: Spoilt, bench: Benches) -> None:
    here, goal = spoilt(bench)
    assert here.rejected(goal)


@pytest.mark.parametrize("spoilt", TWINS.values(), ids=TWINS)
def test_a_harmless_change_is_accepted(spoilt: Spoilt, bench: Benches) -> None:
    here, goal = spoilt(bench)
    assert not here.rejected(goal)
