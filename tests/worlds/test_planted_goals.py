"""Bad goals, each wrong in one way, are rejected for that reason; what they are made of passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from goal_samples import (
    CONFIG,
    DECLINED,
    SORTS,
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

from astra.records.qa import Answer, AnswerType, QuestionKind
from astra.records.state import Write, WriteAction
from astra.records.world import (
    EventKind,
    GoalOutcome,
    OutcomeKind,
    Provenance,
    ReadProof,
    TraceEvent,
    UserAct,
    ValueSource,
    WorldGoal,
    WorldShape,
)
from astra.sandbox.local import LocalSandbox
from astra.worlds.domain import load_domains
from astra.worlds.executions import Executions
from astra.worlds.generator import generate
from astra.worlds.goal_proofs import GoalProof
from astra.worlds.mutants import Mutants
from astra.worlds.mutation import MutantCounts, mutant_fault
from astra.worlds.policy import SAY_FIRST
from astra.worlds.view import WorldView
from astra.worlds.wishes import WishPool

Spoil = Callable[[WorldGoal, Shelf], WorldGoal]


def is_write(shelf: Shelf) -> Callable[[TraceEvent], bool]:
    names = {tool.tool.name for tool in shelf.view.writing}
    return lambda event: event.tool in names


def call_at(goal: WorldGoal, shelf: Shelf) -> int:
    return place(goal, is_write(shelf))


def with_source(goal: WorldGoal, at: int, source: ValueSource | None, event: int = -1) -> WorldGoal:
    """The first argument of a call said to stand elsewhere."""
    provenance = dict(goal.trace[at].provenance)
    name = next(iter(provenance))
    provenance.pop(name)
    if source is not None:
        provenance[name] = Provenance(source=source, at=event)
    return changed_event(goal, at, provenance=provenance)


def first_effect(goal: WorldGoal, **values: Any) -> WorldGoal:
    first = goal.effect[0]
    return other(
        goal, effect=(first.model_copy(update={"values": {**first.values, **values}}),
                      *goal.effect[1:])
    )  # fmt: skip


def one_more_effect(goal: WorldGoal, shelf: Shelf) -> WorldGoal:
    row = shelf.world.rows["members"][-1]
    write = Write(action=WriteAction.UPDATE, table="members",
                  where={"member_id": row["member_id"]}, values={"phone": "1"})  # fmt: skip
    return other(goal, effect=(*goal.effect, write))


def without_events(goal: WorldGoal, right: Callable[[TraceEvent], bool]) -> WorldGoal:
    return other(goal, trace=tuple(event for event in goal.trace if not right(event)))


def told_first(goal: WorldGoal) -> WorldGoal:
    """What is to be said, said before anything was read."""
    at = place(goal, lambda event: event.kind == EventKind.ASSISTANT)
    messages = [event for event in goal.trace if event.kind == EventKind.ASSISTANT]
    rest = [event for event in goal.trace if event.kind != EventKind.ASSISTANT]
    assert at
    return other(goal, trace=(rest[0], *messages, *rest[1:]))


def reference(goal: WorldGoal, **fields: Any) -> WorldGoal:
    return other(goal, references=tuple(
        one.model_copy(update=fields) for one in goal.references))  # fmt: skip


def legal(shelf: Shelf) -> TraceEvent:
    wish = shelf.pool.legal["prolong_loan"][0]
    return TraceEvent(kind=EventKind.CALL, tool=wish.tool, arguments=wish.arguments)


def other_reason(goal: WorldGoal, shelf: Shelf) -> WorldGoal:
    """Another code, declined with as well."""
    at = place(goal, lambda event: event.tool == "decline_request")
    return ends(with_argument(goal, at, reason="not_found"), DECLINED, "not_found")


def next_wishs_value(goal: WorldGoal, shelf: Shelf) -> WorldGoal:
    """A value of the first wish that stands in the words of the next one alone."""
    ask = goal.asks[0]
    name = next(name for name in ask.arguments if shelf.view.table_of(name) is None)
    value = str(ask.arguments[name]).replace("_", " ")
    text = ask.text.replace(value, "some")
    spoiled = other(goal, asks=(ask.model_copy(update={"text": text}), *goal.asks[1:]))
    spoiled = changed_event(spoiled, 0, text=goal.trace[0].text.replace(ask.text, text))
    further = place(goal, lambda event: event.act is UserAct.REQUEST)
    return changed_event(spoiled, further, text=f"{goal.trace[further].text} It is {value}.")


ASSISTANT = EventKind.ASSISTANT
Q = QuestionKind
PLANTED: dict[str, tuple[str, str, Spoil]] = {
    "no opening": ("write", "no_opening", lambda g, s: other(g, trace=g.trace[1:])),
    "no such tool": ("write", "unknown_tool", lambda g, s: changed_event(
        g, call_at(g, s), tool="frobnicate")),
    "a write on no row": ("write", "reference_fails", lambda g, s: changed_event(
        g, call_at(g, s), arguments={k: "XX1" if isinstance(v, str) else v
                                     for k, v in g.trace[call_at(g, s)].arguments.items()})),
    "another cell": ("write", "other_effect", lambda g, s: first_effect(
        g, **{next(iter(g.effect[0].values)): "else"})),
    "an effect too few": ("write", "other_effect", lambda g, s: other(g, effect=())),
    "an effect too many": ("write", "other_effect", one_more_effect),
    "an effect on no row": ("write", "no_effect", lambda g, s: other(g, effect=(
        *g.effect, Write(action=WriteAction.DELETE, table="loans", where={"loan_id": "no"})))),
    "another code": ("forbidden", "other_outcome", lambda g, s: ends(g, DECLINED, "not_found")),
    "done, but to be declined": ("write", "other_outcome", lambda g, s: ends(
        g, DECLINED, "not_found")),
    "declined, but to be done": ("forbidden", "other_outcome", lambda g, s: ends(
        g, OutcomeKind.DONE)),
    "handed over with another topic": ("topic", "other_outcome", lambda g, s: ends(
        g, OutcomeKind.HANDED_OVER, "weather")),
    "another answer": ("read", "not_said", lambda g, s: answer(g, "1999-01-01"
        if g.say[0].answer.type is AnswerType.DATE else 987654
        if g.say[0].answer.type is AnswerType.NUMBER else "never")),
    "said before it is read": ("read", "not_said", lambda g, s: told_first(g)),
    "nothing said": ("read", "not_said", lambda g, s: without_events(
        g, lambda e: e.kind == ASSISTANT)),
    "to be read, but not read": ("write", "not_read", lambda g, s: other(g, must_read=(
        ReadProof(table="works", key=s.world.rows["works"][0]["work_id"], column="genre"),))),
    "not agreed to": ("write", "breaks_rule", lambda g, s: without_events(
        g, lambda e: e.act is UserAct.CONFIRM)),
    "not looked up": ("write", "breaks_rule", lambda g, s: without_events(
        g, lambda e: e.tool == s.view.find.tool.name)),
    "an argument from nowhere": ("write", "no_provenance", lambda g, s: with_source(
        g, call_at(g, s), None)),
    "an argument from later": ("write", "provenance_too_late", lambda g, s: with_source(
        g, call_at(g, s), ValueSource.RESULT, len(g.trace) - 1)),
    "an argument from no result": ("write", "provenance_too_late", lambda g, s: with_source(
        g, call_at(g, s), ValueSource.RESULT, 0)),
    "an argument from another result": ("write", "value_not_there", lambda g, s: with_source(
        g, call_at(g, s), ValueSource.RESULT, 1)),
    "an argument that the user never told": ("write", "value_not_there", lambda g, s: changed_event(
        g, 0, facts={})),
    "a fact that the words lack": ("write", "value_not_there", lambda g, s: changed_event(
        g, 0, text="Do it.")),
    "a key from the documents": ("write", "value_not_there", lambda g, s: with_source(
        g, call_at(g, s), ValueSource.DOCUMENT)),
    "nothing learned on the way": ("topic", "no_result_argument", lambda g, s: without_events(
        g, lambda e: e.tool.startswith("list_"))),
    "a reading goal that writes": ("write", "wrong_kind", lambda g, s: other(g, kind=Q.READ_ONLY)),
    "a writing goal that does not": ("satisfied", "wrong_kind", lambda g, s: other(
        g, kind=Q.WRITE)),
    "a forbidden wish that is met": ("write", "wrong_kind", lambda g, s: other(
        g, kind=Q.FORBIDDEN)),
    "nothing to say": ("satisfied", "nothing_to_say", lambda g, s: other(g, say=())),
    "an answer without a read": ("read", "said_without_read", lambda g, s: other(
        g, say=(g.say[0].model_copy(update={"read": ()}),))),
    "an answer in the question": ("read", "answer_told", lambda g, s: opening_adds(
        g, str(g.say[0].answer.value))),
    "alone, but it needs a user": ("missing", "needs_user", lambda g, s: other(
        g, needs_user=False)),
    "a user who is not needed": ("read", "needs_user", lambda g, s: other(g, needs_user=True)),
    "no parameter is missing": ("missing", "parameter_told", lambda g, s: opening_adds(
        g, " ".join(str(v) for e in g.trace if e.act is UserAct.ANSWER
                    for v in e.facts.values()))),
    "no parameter is asked for": ("missing", "nothing_missing", lambda g, s: changed_event(
        g, place(g, lambda e: e.act is UserAct.ANSWER), act=UserAct.CLOSE)),
    "a tool that never comes": ("late", "reference_fails", lambda g, s: changed_event(
        g, place(g, lambda e: e.act is UserAct.TOOL), adds_tools=())),
    "a late tool that is not needed": ("late", "tool_not_needed", lambda g, s: other(
        g, withheld=("show_copy",))),
    "no change of mind": ("changes", "no_change", lambda g, s: changed_event(
        g, place(g, lambda e: e.act is UserAct.CHANGE), act=UserAct.REQUEST)),
    "a change after the user has agreed": ("changes", "change_unasked", lambda g, s: changed_event(
        g, 0, act=UserAct.CONFIRM)),
    "a further wish for nothing": ("successive", "empty_request", lambda g, s: other(
        g, asks=tuple(ask for ask in g.asks if not ask.at))),
    "a further wish that is met before": ("successive", "done_before_asked", lambda g, s: other(
        g, asks=tuple(ask.model_copy(update={"at": place(g, lambda e: e.act is UserAct.REQUEST)})
                      for ask in g.asks))),
    "words of the next wish": ("successive", "argument_untold", next_wishs_value),
    "words that fit nothing": ("write", "ambiguous_wording", lambda g, s: reference(
        g, where={"loan_id": "LN0000"})),
    "words that fit anything": ("write", "ambiguous_wording", lambda g, s: reference(
        g, where={}, least="", most="")),
    "the key in the words": ("write", "named_outright", lambda g, s: opening_adds(
        g, g.references[0].key)),
    "nobody chooses": ("choice", "no_choice", lambda g, s: changed_event(
        g, place(g, lambda e: e.act is UserAct.CHOOSE), act=UserAct.ANSWER)),
    "a candidate too many": ("choice", "wrong_candidates", lambda g, s: other(
        g, candidates=(*g.candidates, {**g.candidates[0], "loan_id": "LN0000"}))),
    "a choice of one": ("choice", "no_choice", lambda g, s: other(
        g, candidates=g.candidates[:1])),
    "no wish is told": ("forbidden", "no_wish", lambda g, s: other(g, wish=())),
    "a wish that fails anyway": ("forbidden", "wish_fails", lambda g, s: unknown_wish(g)),
    "a wish that no rule forbids": ("forbidden", "breaks_no_rule", lambda g, s: other(
        g, wish=(legal(s),))),
    "a wish that another rule forbids": ("forbidden", "breaks_other_rules", lambda g, s: other(
        g, violates="restricted")),
    "a code that is not the rule's": ("forbidden", "wrong_reason", other_reason),
    "an infeasible wish that succeeds": ("refused", "wish_succeeds", lambda g, s: other(
        g, wish=(legal(s),))),
    "a missing tool that is there": ("not_offered", "tool_not_missing", lambda g, s: other(
        g, withheld=())),
}  # fmt: skip


def test_where_no_rule_makes_the_agent_ask_nobody_changes_their_mind(shelf: Shelf) -> None:
    rules = tuple(rule for rule in shelf.world.rules if rule.id != "confirm")
    view = WorldView(shelf.world.model_copy(update={"rules": rules}))
    proof = GoalProof(view, shelf.executions, shelf.goals["changes"], CONFIG)
    assert "change_unasked" in [fault.reason for fault in proof.faults()]


@pytest.mark.parametrize("sort", ["late", "not_offered"])
def test_the_policy_says_that_the_user_may_have_a_tool(shelf: Shelf, sort: str) -> None:
    policy = shelf.world.policy.replace(SAY_FIRST, "")
    view = WorldView(shelf.world.model_copy(update={"policy": policy}))
    proof = GoalProof(view, shelf.executions, shelf.goals[sort], CONFIG)
    assert [fault.reason for fault in proof.faults()] == ["late_tool_unsaid"]


@pytest.mark.parametrize("sort", SORTS)
def test_the_goals_that_are_spoiled_are_good(shelf: Shelf, sort: str) -> None:
    assert shelf.reasons(shelf.goals[sort]) == []


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_fault_is_found(shelf: Shelf, planted: str) -> None:
    sort, reason, spoil = PLANTED[planted]
    assert reason in shelf.reasons(spoil(shelf.goals[sort], shelf))


def test_a_column_that_no_tool_shows_names_no_row(shelf: Shelf) -> None:
    goal = shelf.goals["write"]
    hidden = {goal.references[0].least, goal.references[0].most, *goal.references[0].where}
    table = goal.references[0].table
    tools = tuple(
        tool.model_copy(update={"shows": {
            name: tuple(c for c in columns if name != table or c not in hidden)
            for name, columns in tool.shows.items()}})
        for tool in shelf.world.tools
    )  # fmt: skip
    world = shelf.world.model_copy(update={"tools": tools})
    proof = GoalProof(WorldView(world), shelf.executions, goal, CONFIG)
    assert "hidden_column" in [fault.reason for fault in proof.faults()]


def test_a_second_tool_for_what_is_not_offered_is_a_loophole(
    shelf: Shelf, sandbox: LocalSandbox
) -> None:
    goal = shelf.goals["not_offered"]
    twin = shelf.view.tools[goal.wish[0].tool]
    document = twin.tool.model_copy(update={"name": "other_way"})
    code = twin.code.replace(f"def {twin.tool.name}(", "def other_way(")
    added = twin.model_copy(update={"tool": document, "code": code})
    world = shelf.world.model_copy(update={"tools": (*shelf.world.tools, added)})
    with Executions(world, sandbox) as executions:
        faults = [*GoalProof(WorldView(world), executions, goal, CONFIG).faults()]
    assert [fault.reason for fault in faults] == ["loophole"]
    assert "other_way" in faults[0].detail


def test_changes_that_are_not_the_codes_are_found(shelf: Shelf) -> None:
    """The effect is derived from the declared changes; code alone does not make it right."""
    goal = shelf.goals["write"]
    name = goal.trace[call_at(goal, shelf)].tool
    tools = tuple(
        tool.model_copy(update={"changes": tool.changes[:0]}) if tool.tool.name == name else tool
        for tool in shelf.world.tools
    )
    view = WorldView(shelf.world.model_copy(update={"tools": tools}))
    reasons = [f.reason for f in GoalProof(view, shelf.executions, goal, CONFIG).faults()]
    assert "effect_differs" in reasons


def test_checkers_that_pay_too_much_or_too_little(shelf: Shelf) -> None:
    read, changes = shelf.goals["read"], shelf.goals["changes"]
    assert mutated(shelf, other(read, say=(), must_read=())) == "mutant_M1"
    assert mutated(shelf, other(read, must_read=(), say=(
        read.say[0].model_copy(update={"read": ()}),))) == "mutant_M13"  # fmt: skip
    at = call_at(changes, shelf)
    same = TraceEvent(kind=EventKind.CALL, tool=changes.trace[at].tool,
                      arguments=changes.trace[at].arguments)  # fmt: skip
    assert mutated(shelf, other(changes, wish=(same,))) == "idle_change"
    told = Answer(type=AnswerType.STRING, value="something else")
    unsayable = other(read, say=(read.say[0].model_copy(update={"answer": told}),))
    assert mutated(shelf, unsayable) == "right_A1"


def test_a_write_that_a_later_one_covers_is_idle(sandbox: LocalSandbox) -> None:
    world = generate(load_domains()["museum_ticketing"], 0, WorldShape.FULL, 0)
    view = WorldView(world)
    tool = next(tool.tool.name for tool in view.writing if {"email", "phone"} <= {
        *view.parameters(tool.tool.name)})  # fmt: skip
    key = world.rows["visitors"][0]["visitor_id"]
    calls = [TraceEvent(kind=EventKind.CALL, tool=tool, arguments={"visitor_id": key, "phone": new})
             for new in ("0111 1", "0222 2")]  # fmt: skip
    effect = Write(action=WriteAction.UPDATE, table="visitors", where={"visitor_id": key},
                   values={"phone": "0222 2"})  # fmt: skip
    goal = WorldGoal(
        kind=Q.WRITE, outcome=GoalOutcome(kind=OutcomeKind.DONE), effect=(effect,),
        trace=(TraceEvent(kind=EventKind.USER, text="Another phone, please."), *calls),
    )  # fmt: skip
    free = world.model_copy(update={"rules": ()})
    with Executions(free, sandbox) as executions:
        mutants = Mutants(WorldView(free), executions, WishPool(), goal, ())
        assert mutant_fault(mutants, MutantCounts()) == "idle_write"


def mutated(shelf: Shelf, goal: WorldGoal) -> str:
    mutants = Mutants(shelf.view, shelf.executions, shelf.pool, goal, ())
    return mutant_fault(mutants, MutantCounts())
