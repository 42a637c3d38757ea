"""Goals spoiled by hand, and harmless twins: a goal ships only past its proof and its mutants.

They were planted by somebody who knew what goals are for, but not how they are proved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from operator import attrgetter
from typing import Any, NamedTuple

import pytest
from goal_samples import CONFIG, changed_event, other, place
from small_worlds import changed
from strangers import (
    LIBRARY,
    MUSEUM,
    PERMITS,
    Base,
    Drawer,
    base,
    drawer,
    loan,
    owner,
)

from astra.records.state import Write
from astra.records.world import (
    EventKind,
    GoalOutcome,
    GoalTrait,
    OutcomeKind,
    Provenance,
    ReadProof,
    TraceEvent,
    UserAct,
    ValueSource,
    World,
    WorldGoal,
)
from astra.sandbox.local import LocalSandbox
from astra.worlds.executions import Executions
from astra.worlds.goal_proofs import GoalProof
from astra.worlds.view import WorldView

T = GoalTrait
Spoil = Callable[[World, WorldGoal], WorldGoal]


@pytest.fixture(scope="session")
def draw(sandbox: LocalSandbox) -> Iterator[Callable[[World], Drawer]]:
    drawers: dict[str, Drawer] = {}
    with ExitStack() as stack:

        def of(world: World) -> Drawer:
            if world.id not in drawers:
                drawers[world.id] = drawer(world, sandbox, stack)
            return drawers[world.id]

        yield of


def said(goal: WorldGoal, at: int, old: str, new: str) -> WorldGoal:
    assert old in goal.trace[at].text, (old, goal.trace[at].text)
    return changed_event(goal, at, text=goal.trace[at].text.replace(old, new))


def everywhere(goal: WorldGoal, old: Any, new: Any) -> WorldGoal:
    """The goal in which a value is another wherever it stands."""

    def turned(part: Any) -> Any:
        if isinstance(part, dict):
            return {turned(key): turned(value) for key, value in part.items()}
        if isinstance(part, list):
            return [turned(one) for one in part]
        if part == old and type(part) is type(old):
            return new
        return part.replace(str(old), str(new)) if isinstance(part, str) else part

    return WorldGoal(**turned(goal.model_dump(mode="json")))


def act(goal: WorldGoal) -> int:
    """The last call of the trace."""
    return place(goal, lambda one: one.kind is EventKind.CALL)


def argued(goal: WorldGoal, at: int, **values: Any) -> WorldGoal:
    return changed_event(goal, at, arguments={**goal.trace[at].arguments, **values})


def _wrong_effect(world: World, goal: WorldGoal) -> WorldGoal:
    first, *rest = goal.effect
    name, right = next(iter(first.values.items()))
    wrong = next(row[name] for row in world.rows[first.table] if row[name] != right)
    values = {**first.values, name: wrong}
    return other(goal, effect=(first.model_copy(update={"values": values}), *rest))


def _no_ledger(world: World, goal: WorldGoal) -> WorldGoal:
    return other(goal, effect=tuple(w for w in goal.effect if w.table != "receipts"))


def _half_price(world: World, goal: WorldGoal) -> WorldGoal:
    return other(goal, effect=tuple(
        w if w.table != "receipts"
        else w.model_copy(update={"values": {**w.values, "amount": w.values["amount"] + 1}})
        for w in goal.effect))  # fmt: skip


def _reason(code: str) -> Spoil:
    def spoil(world: World, goal: WorldGoal) -> WorldGoal:
        assert goal.outcome.reason != code
        outcome = GoalOutcome(kind=goal.outcome.kind, reason=code)
        return other(argued(goal, act(goal), reason=code), outcome=outcome)

    return spoil


def _handed(world: World, goal: WorldGoal) -> WorldGoal:
    call = goal.trace[act(goal)].model_copy(update={
        "tool": "hand_over", "arguments": {"reason": "complaint", "summary": "too_long"},
        "provenance": {name: Provenance(source=ValueSource.DOCUMENT)
                       for name in ("reason", "summary")}})  # fmt: skip
    outcome = GoalOutcome(kind=OutcomeKind.HANDED_OVER, reason="complaint")
    at = act(goal)
    return other(goal, trace=(*goal.trace[:at], call, *goal.trace[at + 1 :]), outcome=outcome)


def _never_asked(world: World, goal: WorldGoal) -> WorldGoal:
    """A choice that the user never makes: two loans fit, and one is taken."""
    at = place(goal, lambda one: one.act is UserAct.CHOOSE)
    gone = {at - 1, at}

    def moved(number: int) -> int:
        return number - sum(one < number for one in gone)

    kept = [
        one.model_copy(update={"provenance": {
            name: p.model_copy(update={"at": moved(p.at)}) for name, p in one.provenance.items()}})
        for number, one in enumerate(goal.trace) if number not in gone
    ]  # fmt: skip
    opening = goal.trace[0].facts
    references = tuple(
        one.model_copy(update={"at": moved(one.at), "where": {
            key: value for key, value in one.where.items()
            if f"{one.argument}.{key}" in opening}})
        for one in goal.references
    )  # fmt: skip
    traits = tuple(T.IMPLICIT if one is T.CHOICE else one for one in goal.traits)
    return other(goal, trace=tuple(kept), references=references, candidates=(), traits=traits)


def _fits_two(world: World, goal: WorldGoal) -> WorldGoal:
    at = place(goal, lambda one: one.act is UserAct.CHOOSE)
    (reference,) = goal.references
    shared = {key: value for key, value in reference.where.items()
              if all(row[key] == value for row in goal.candidates)}  # fmt: skip
    assert shared
    name, value = next(iter(shared.items()))
    words = f"I mean my loan with {name.replace('_', ' ')} {value}."
    goal = changed_event(goal, at, text=words, facts={f"{reference.argument}.{name}": value})
    return other(goal, references=(reference.model_copy(update={"where": shared}),))


def _distractor_first(world: World, goal: WorldGoal) -> WorldGoal:
    return other(goal, candidates=tuple(reversed(goal.candidates)))


def _silent_answer(world: World, goal: WorldGoal) -> WorldGoal:
    at = place(goal, lambda one: one.act is UserAct.ANSWER)
    return changed_event(goal, at, text="You know that very well.")


def _nameless(world: World, goal: WorldGoal) -> WorldGoal:
    facts = goal.trace[0].facts
    mail = next(value for key, value in facts.items() if key.startswith("own "))
    return said(goal, 0, str(mail), "the usual one")


def _told_before(world: World, goal: WorldGoal) -> WorldGoal:
    at = place(goal, lambda one: one.act is UserAct.ANSWER)
    return changed_event(goal, 0, text=f"{goal.trace[0].text} {goal.trace[at].text}",
                         facts={**goal.trace[0].facts, **goal.trace[at].facts})  # fmt: skip


def _existing(world: World, goal: WorldGoal) -> WorldGoal:
    return everywhere(goal, goal.wish[0].arguments["loan_id"],
                      loan(world, goal, loan_state="active"))  # fmt: skip


def _still_active(world: World, goal: WorldGoal) -> WorldGoal:
    old = next(value for key, value in goal.trace[0].facts.items() if key == "loan_id")
    new = loan(world, goal, loan_state="active")
    return everywhere(everywhere(goal, old, new), goal.say[0].answer.value, "active")


def _wrong_answer(world: World, goal: WorldGoal) -> WorldGoal:
    return everywhere(goal, goal.say[0].answer.value, "2026-01-02")


def _wrong_state(world: World, goal: WorldGoal) -> WorldGoal:
    return everywhere(everywhere(goal, "in_force", "expired"), "in force", "expired")


def _read_elsewhere(world: World, goal: WorldGoal) -> WorldGoal:
    """The answer is asked of one loan and read of another."""
    proof = goal.say[0].read[0]
    key = next(row["loan_id"] for row in world.rows["loans"]
               if row["member_id"] != owner(world, goal))  # fmt: skip
    read = (proof.model_copy(update={"key": key}),)
    return other(goal, say=(goal.say[0].model_copy(update={"read": read}),), must_read=read)


def _not_read(world: World, goal: WorldGoal) -> WorldGoal:
    say = tuple(one.model_copy(update={"read": ()}) for one in goal.say)
    return other(goal, say=say, must_read=())


def _unconfirmed(world: World, goal: WorldGoal) -> WorldGoal:
    at = place(goal, lambda one: one.act is UserAct.CONFIRM)
    return changed_event(goal, at, act=UserAct.ANSWER, text="I am not so sure.")


def _from_the_future(world: World, goal: WorldGoal) -> WorldGoal:
    at = act(goal)
    name, origin = next((n, p) for n, p in goal.trace[at].provenance.items()
                        if p.source is ValueSource.RESULT)  # fmt: skip
    return changed_event(goal, at, provenance={
        **goal.trace[at].provenance, name: origin.model_copy(update={"at": at})})  # fmt: skip


def _more_words(text: str) -> Spoil:
    return lambda world, goal: changed_event(goal, 0, text=f"{goal.trace[0].text} {text}")


def _somebody_else(world: World, goal: WorldGoal) -> WorldGoal:
    """The person who calls is not whose loan it is."""
    mine = owner(world, goal)
    party = next(row for row in world.rows["members"] if row["member_id"] == mine)
    foreign = next(row for row in world.rows["members"] if row["member_id"] != mine)
    for key in ("email", "name", "postcode"):
        goal = everywhere(goal, party[key], foreign[key])
    return goal


def _keeps_rule(world: World, goal: WorldGoal) -> WorldGoal:
    days = goal.wish[0].arguments["days"]
    return everywhere(everywhere(goal, days, 3), f"by {days} days", "by 3 days")


def _early(world: World, goal: WorldGoal) -> WorldGoal:
    at = place(goal, lambda one: one.act is UserAct.TOOL)
    return changed_event(goal, at, adds_tools=())


def _before(world: World, goal: WorldGoal) -> WorldGoal:
    """What was asked for afterwards is answered with what stood there before."""
    (say,) = goal.say
    at = place(goal, lambda one: str(say.answer.value) in one.text)
    old = say.answer.model_copy(update={"value": say.answer.value - 1})
    goal = said(goal, at, f"{say.answer.value}.", f"{old.value}.")
    return other(goal, say=(say.model_copy(update={"answer": old}),))


def _other_loan(world: World, goal: WorldGoal) -> WorldGoal:
    """The words name one loan of the person, the calls take another."""
    meant = goal.trace[0].facts["loan_id"]
    named = next(
        row["loan_id"]
        for row in world.rows["loans"]
        if row["loan_id"] != meant and row["member_id"] == owner(world, goal)
    )
    goal = changed_event(goal, 0, facts={**goal.trace[0].facts, "loan_id": named})
    return said(goal, 0, meant, named)


def _twice(world: World, goal: WorldGoal) -> WorldGoal:
    """What is written once is expected twice."""
    write = next(w for w in goal.effect if w.table == "receipts")
    again = Write(action=write.action, table=write.table, values={
        **write.values, "receipt_id": "receipts-000000"})  # fmt: skip
    return other(goal, effect=(*goal.effect, again))


def _polite(world: World, goal: WorldGoal) -> WorldGoal:
    return changed_event(goal, 0, text=goal.trace[0].text + " Thank you very much in advance!")


def _looked_twice(world: World, goal: WorldGoal) -> WorldGoal:
    """The agent talks before the last call of the trace, which moves what comes after."""
    talk = TraceEvent(kind=EventKind.ASSISTANT, text="One moment, please.")
    return other(goal, trace=(*goal.trace, talk))


def _reversed(world: World, goal: WorldGoal) -> WorldGoal:
    return other(goal, effect=tuple(reversed(goal.effect)))


def _also_the_key(world: World, goal: WorldGoal) -> WorldGoal:
    more = ReadProof(table="loans", key=goal.say[0].read[0].key, column="copy_id")
    return other(goal, must_read=(*goal.must_read, more))


class Case(NamedTuple):
    name: str
    reason: str
    """Why it is dropped."""
    base: Base
    sort: str
    spoil: Spoil
    twin: Spoil | None = None


CASES = (
    Case("the effect sets a cell to another", "other_effect", LIBRARY, "write", _wrong_effect),
    Case("the effect forgets the receipt", "other_effect", LIBRARY, "paid", _no_ledger, _reversed),
    Case("the receipt is of another amount", "other_effect", LIBRARY, "paid", _half_price),
    Case("the receipt is expected twice", "other_effect", LIBRARY, "paid", _twice),
    Case("declined for another rule", "wrong_reason", LIBRARY, "long", _reason("too_late")),
    Case("declined for something else", "wrong_reason", LIBRARY,
         "refused", _reason("not_available")),
    Case("handed over what a rule forbids", "wrong_kind", LIBRARY, "long", _handed),
    Case("a donation is a complaint", "wrong_topic", LIBRARY,
         "topic", _reason("complaint"), _polite),
    Case("two loans fit, nobody says which", "ambiguous_wording", LIBRARY, "choice", _never_asked),
    Case("the fact fits them both", "ambiguous_wording", LIBRARY, "choice", _fits_two, _polite),
    Case("what is meant does not come first", "no_choice", LIBRARY, "choice", _distractor_first),
    Case("the answer tells nothing", "value_not_there", LIBRARY, "missing", _silent_answer),
    Case("who is it?", "value_not_there", LIBRARY, "read", _nameless, _looked_twice),
    Case("asked for what was told", "parameter_told", LIBRARY, "missing", _told_before, _polite),
    Case("what is not found is there", "wish_succeeds", LIBRARY, "refused", _existing, _polite),
    Case("what should hold does not yet", "not_satisfied", LIBRARY,
         "satisfied", _still_active, _polite),
    Case("another date is due to be told", "other_value", LIBRARY,
         "read", _wrong_answer, _also_the_key),
    Case("what stood there before", "not_said", LIBRARY, "told", _before, _polite),
    Case("another loan than the words name", "ask_untold", LIBRARY, "told", _other_loan),
    Case("forbidden for another loan", "ask_untold", LIBRARY, "long", _other_loan),
    Case("read of somebody else's loan", "not_said", LIBRARY, "read", _read_elsewhere),
    Case("an answer out of the blue", "said_without_read", LIBRARY, "read", _not_read),
    Case("nobody agreed", "breaks_rule", LIBRARY, "mixed", _unconfirmed, _polite),
    Case("learned from the call itself", "provenance_too_late", LIBRARY, "mixed", _from_the_future),
    Case("a second wish that nobody meets", "more_asked", LIBRARY, "mixed",
         _more_words("And please pay all my fines with my gift card.")),
    Case("somebody else's loan", "breaks_rule", LIBRARY, "late", _somebody_else),
    Case("forbidden what no rule forbids", "breaks_no_rule", LIBRARY, "long", _keeps_rule),
    Case("the tool never comes", "reference_fails", LIBRARY, "late", _early, _polite),
    Case("not offered, but it is", "tool_not_missing", LIBRARY, "not_offered",
         lambda world, goal: other(goal, withheld=())),
    Case("needs nobody, although a fact is asked for", "needs_user", LIBRARY, "choice",
         lambda world, goal: other(goal, needs_user=False)),
    Case("implicit with the key in its words", "other_traits", LIBRARY, "mixed",
         lambda world, goal: other(goal, traits=(*goal.traits, T.IMPLICIT))),
    Case("a mind is changed to the same", "idle_change", LIBRARY, "other_reason",
         lambda _, goal: goal),
    Case("another rule is said to forbid it", "breaks_other_rules", PERMITS, "long",
         lambda world, goal: other(goal, violates="authenticate"), _polite),
    Case("a state that it does not have", "other_value", PERMITS, "read", _wrong_state),
    Case("a window that was left keeps its places", "other_effect", MUSEUM, "write",
         lambda world, goal: other(goal, effect=(goal.effect[0], *goal.effect[2:])), _reversed),
    Case("the order goes to another window", "other_effect", MUSEUM, "write", _wrong_effect),
    Case("a small wish that may be met", "breaks_no_rule", PERMITS, "long", _keeps_rule),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=attrgetter("name"))
def test_a_spoiled_goal_is_dropped(case: Case, draw: Callable[[World], Drawer]) -> None:
    world = base(case.base)
    of = draw(world)
    fault = of.fault(case.spoil(world, of.goal(case.sort)))
    assert fault == case.reason


@pytest.mark.parametrize("case", [case for case in CASES if case.twin], ids=attrgetter("name"))
def test_its_harmless_twin_is_not(case: Case, draw: Callable[[World], Drawer]) -> None:
    world = base(case.base)
    of = draw(world)
    assert case.twin is not None
    assert of.fault(case.twin(world, of.goal(case.sort))) == ""


def _way_round(world: World) -> World:
    """The library with a second tool that prolongs, which no rule governs."""
    tool = next(one for one in world.tools if one.tool.name == "prolong_loan")
    twin = tool.model_copy(update={
        "tool": tool.tool.model_copy(update={"name": "stretch_loan"}),
        "code": tool.code.replace("def prolong_loan", "def stretch_loan")})  # fmt: skip
    rules = tuple(
        one.model_copy(update={"tools": (*one.tools, "stretch_loan")})
        if one.id in ("authenticate", "confirm") else one
        for one in world.rules
    )  # fmt: skip
    return changed(world, tools=(*world.tools, twin), rules=rules)


def test_a_forbidden_wish_with_a_legal_way_round_is_dropped(
    draw: Callable[[World], Drawer], sandbox: LocalSandbox
) -> None:
    world = base(LIBRARY)
    goal = draw(world).goal("long")
    with Executions(_way_round(world), sandbox) as executions:
        view = WorldView(_way_round(world))
        found = GoalProof(view, executions, goal, CONFIG).fault()
    assert found is not None
    assert found.reason == "loophole"
