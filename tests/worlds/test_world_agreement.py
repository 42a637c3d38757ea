"""The calls by which a rule's sentence is held against its expression."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import date
from functools import cache
from typing import Any

import pytest
from small_worlds import changed, small_world

from astra.arena.expressions import holds, scope_of
from astra.records.world import EventKind, PolicyRule, UserAct, World, WorldShape
from astra.worlds.agreement import RuleCase, agreement_fault, rule_cases
from astra.worlds.asks import DecideReply
from astra.worlds.domain import load_domains
from astra.worlds.generator import generate

COUNT = 12
Reader = Callable[[RuleCase], bool]


@cache
def library() -> World:
    return generate(load_domains()["library_loans"], 0, WorldShape.FULL, 0)


@cache
def gym() -> World:
    return generate(load_domains()["gym_classes"], 0, WorldShape.FULL, 0)


def reader(world: World, rule: PolicyRule) -> Reader:
    """Somebody who reads a rule right and sees of a case what is shown of it, no more."""

    def read(case: RuleCase) -> bool:
        shown = {table.name: case.records.get(table.name, []) for table in world.tables}
        scope = scope_of(world, shown, arguments=case.arguments, events=case.events)
        beside = rule.when is not None and not holds(rule.when, scope)
        return beside or holds(rule.require, scope)

    return read


def fault(world: World, rule: PolicyRule, read: Reader) -> str:
    cases = rule_cases(world, rule, COUNT)
    reply = DecideReply.model_validate(
        {"cases": [{"case": at, "allowed": read(one)} for at, one in enumerate(cases, start=1)]}
    )
    found = agreement_fault(rule, cases, COUNT, reply)
    return found.reason if found else ""


def shifted(tree: Any) -> Iterator[Any]:
    """The tree with one limit a step off, or with the limit itself on the other side."""
    if not isinstance(tree, dict):
        return
    for name, operand in tree.items():
        if name in ("lt", "le"):
            yield {{"lt": "le", "le": "lt"}[name]: operand}
            for at, part in enumerate(operand):
                if isinstance(part, int):
                    for by in (-1, 1):
                        yield {name: [part + by if i == at else one
                                      for i, one in enumerate(operand)]}  # fmt: skip
        elif name in ("and", "or"):
            for at, part in enumerate(operand):
                for other in shifted(part):
                    yield {name: [other if i == at else one for i, one in enumerate(operand)]}


def limited() -> Iterator[Any]:
    for world in (library(), gym()):
        for rule in world.rules:
            for number, tree in enumerate(shifted(rule.require)):
                name = f"{world.domain}-{rule.id}-{number}"
                yield pytest.param(world, rule, tree, id=name)


@pytest.mark.parametrize("world", [library(), gym(), small_world()], ids=lambda w: w.title)
def test_who_reads_rightly_agrees_by_what_is_shown(world: World) -> None:
    for rule in world.rules:
        assert fault(world, rule, reader(world, rule)) == "", rule.id


@pytest.mark.parametrize(("world", "rule", "tree"), limited())
def test_an_expression_that_is_one_off_is_found(world: World, rule: PolicyRule, tree: Any) -> None:
    wrong = rule.model_copy(update={"require": tree})
    assert fault(world, wrong, reader(world, rule)) == "other_reading"


def window(operator: str) -> PolicyRule:
    days = {"days_between": [{"clock": "date"}, {"arg": "loan_date"}]}
    today = {"le": [{"clock": "date"}, {"arg": "loan_date"}]}
    rule = next(one for one in library().rules if one.id == "extend_length")
    lend = next(
        t.tool.name for t in library().tools if "loan_date" in t.tool.parameters["required"]
    )
    return rule.model_copy(update={
        "text": f"Use `{lend}` only for a first day from today up to and including 60 days later.",
        "tools": (lend,), "require": {"and": [today, {operator: [days, 60]}]},
    })  # fmt: skip


def test_sixty_days_and_fewer_than_sixty_are_told_apart() -> None:
    assert fault(library(), window("le"), reader(library(), window("le"))) == ""
    assert fault(library(), window("lt"), reader(library(), window("le"))) == "other_reading"


def test_consent_before_and_after_a_change() -> None:
    rule = next(one for one in library().rules if one.id == "confirm")
    words = {UserAct.CONFIRM: "yes", None: "change"}
    seen = {(case.allowed, *(words[event.act] for event in case.events))
            for case in rule_cases(library(), rule, 24)}  # fmt: skip
    assert {(False, "yes", "change"), (True, "change", "yes"), (True, "yes")} <= seen
    changes = [event for case in rule_cases(library(), rule, 24) for event in case.events
               if event.kind is EventKind.CALL]  # fmt: skip
    assert all(event.result for event in changes)


def test_rows_of_others_are_left_out() -> None:
    """Of the rows that a rule counts for a member, those of other members are not shown."""
    rule = window("le")
    mine = {"count": ["loans", {"member_id": {"arg": "member_id"}, "loan_state": "active"}]}
    counting = rule.model_copy(update={"require": {"lt": [mine, 3]}})
    cases = rule_cases(library(), counting, COUNT)
    assert len({case.allowed for case in cases}) == 2
    for case in cases:
        assert {row["member_id"] for row in case.records.get("loans", ())} <= {
            case.arguments["member_id"]
        }


def test_what_is_too_much_to_show_makes_no_case() -> None:
    every = window("le").model_copy(update={"require": {"lt": [{"count": ["loans", {}]}, 70]}})
    assert not rule_cases(library(), every, COUNT)


def test_cases_are_the_same_again() -> None:
    rule = small_world().rules[1]
    world = changed(small_world())
    first, second = (rule_cases(one, rule, COUNT) for one in (small_world(), world))
    assert first == second
    assert len({json.dumps(case.shown(0), default=str) for case in first}) == COUNT


def test_a_date_that_is_none_makes_no_case() -> None:
    """What a rule asks to have been shown, or counts, may be worked out from a date drawn wrong."""
    due = {"date_add": [{"arg": "loan_date"}, 7]}
    read = next(t for t in library().tools if "due_date" in t.shows.get("loans", ()))
    shown = {"seen": [read.tool.name, "due_date", due]}
    counted = {"lt": [{"count": ["loans", {"due_date": due}]}, 3]}
    today = {"le": [{"clock": "date"}, {"arg": "loan_date"}]}
    for require in (shown, {"or": [today, counted]}):
        cases = rule_cases(library(), window("le").model_copy(update={"require": require}), 24)
        days = [case.arguments["loan_date"] for case in cases]
        assert days
        assert [str(date.fromisoformat(day)) for day in days] == days


def test_limits_that_coincide_leave_room_for_what_is_forbidden() -> None:
    """Two limits of this rule have the same last call inside: no drawn call counts as a limit."""
    rule = next(one for one in gym().rules if one.id == "tier_limit")
    assert [case.allowed for case in rule_cases(gym(), rule, 12)].count(False) == 6
