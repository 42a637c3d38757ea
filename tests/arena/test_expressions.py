"""Expressions over a world: hand-checked values, refusals with their path, and laws."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astra.arena.expressions import ExpressionError, Scope, evaluate, holds
from astra.records.state import Tables
from astra.records.world import EventKind, TraceEvent, UserAct

TABLES: Tables = {
    "boats": [
        {"boat_id": "b1", "name": "Heron", "seats": 4, "price": 12.1, "owner": "p1",
         "tags": ["sail", "old"], "due": "2026-03-02", "ready": True},
        {"boat_id": "b2", "name": "Wren", "seats": 2, "price": 0.2, "owner": "p2",
         "tags": [], "due": None, "ready": False},
        {"boat_id": "b3", "name": "Gull", "seats": 4, "price": None, "owner": "p1",
         "tags": ["tin"], "due": "2026-02-27T23:59:00", "ready": None},
    ],
    "people": [{"person_id": "p1", "tier": "gold"}, {"person_id": "p2", "tier": "basic"}],
}  # fmt: skip


def call(tool: str, result: Any = None, failed: str = "", **arguments: Any) -> TraceEvent:
    return TraceEvent(
        kind=EventKind.CALL, tool=tool, arguments=arguments, result=result, failed=failed
    )


def agree() -> TraceEvent:
    return TraceEvent(kind=EventKind.USER, text="Yes.", act=UserAct.CONFIRM)


def scope(*events: TraceEvent, row: dict[str, Any] | None = None, **arguments: Any) -> Scope:
    return Scope(
        tables=TABLES, keys={"boats": "boat_id", "people": "person_id"},
        clock="2026-02-28T09:30:00", arguments=arguments, row=row, events=events,
        writing=frozenset({"book"}),
    )  # fmt: skip


BOAT = {"row": ["boats", {"arg": "boat"}]}


@pytest.mark.parametrize(
    ("expr", "value"),
    [
        (None, None), (3, 3), ("x", "x"), (True, True),
        ({"arg": "boat"}, "b1"), ({"arg": "left_out"}, None),
        ({"clock": "date"}, "2026-02-28"), ({"clock": "datetime"}, "2026-02-28T09:30:00"),
        ({"field": [BOAT, "seats"]}, 4),
        ({"row": ["boats", "b9"]}, None), ({"field": [{"row": ["boats", "b9"]}, "seats"]}, None),
        ({"field": [{"row": ["people", {"field": [BOAT, "owner"]}]}, "tier"]}, "gold"),
        ({"eq": [None, {"arg": "left_out"}]}, True),
        ({"eq": [1, 1.0]}, True), ({"eq": [1, True]}, False), ({"eq": ["1", 1]}, False),
        ({"eq": [{"field": [BOAT, "tags"]}, {"field": [{"row": ["boats", "b1"]}, "tags"]}]}, True),
        ({"lt": [1, 2]}, True), ({"lt": [2, 2]}, False), ({"le": [2, 2]}, True),
        ({"lt": [None, 2]}, False), ({"le": [2, None]}, False), ({"lt": ["a", "b"]}, True),
        ({"in": ["b", ["a", {"arg": "letter"}]]}, True), ({"in": [1, []]}, False),
        ({"in": ["sail", {"field": [BOAT, "tags"]}]}, True),
        ({"in": ["sail", {"field": [{"row": ["boats", "b9"]}, "tags"]}]}, False),
        ({"and": []}, True), ({"or": []}, False), ({"and": [True, None]}, False),
        ({"or": [None, True]}, True), ({"not": None}, True), ({"not": True}, False),
        ({"and": [False, "not looked at"]}, False), ({"or": [True, "not looked at"]}, True),
        ({"add": [0.1, 0.2]}, 0.3), ({"sub": [1, 3]}, -2), ({"mul": [3, 0.5]}, 1.5),
        ({"add": [None, 1]}, None), ({"mul": [1, {"arg": "left_out"}]}, None),
        ({"days_between": ["2026-02-28", "2026-03-02"]}, 2),
        ({"days_between": [{"clock": "datetime"}, "2026-02-27T23:59:00"]}, -1),
        ({"days_between": [None, "2026-03-02"]}, None),
        ({"date_add": ["2026-02-27", 2]}, "2026-03-01"),
        ({"date_add": [{"clock": "datetime"}, -28]}, "2026-01-31"),
        ({"date_add": [None, 2]}, None), ({"date_add": ["2026-02-27", None]}, None),
        ({"count": ["boats", {}]}, 3), ({"count": ["boats", {"seats": 4, "owner": "p1"}]}, 2),
        ({"count": ["boats", {"due": None}]}, 1), ({"exists": ["boats", {"name": "Tern"}]}, False),
        ({"exists": ["boats", {"name": "Wren"}]}, True),
        ({"exists": ["boats", {"ready": 1}]}, False),
        ({"sum": ["boats", "price", {}]}, 12.3), ({"sum": ["boats", "price", {"seats": 9}]}, 0),
    ],
)  # fmt: skip
def test_values_by_hand(expr: Any, value: Any) -> None:
    found = evaluate(expr, scope(boat="b1", letter="b"))
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("expr", "told"),
    [
        ({}, r"\$: neither"), ({"eq": [1, 1], "not": True}, r"\$: neither"), ([1], r"\$: neither"),
        ({"equals": [1, 1]}, "no operator 'equals'"),
        ({"eq": [1]}, r"\$\.eq: expected a list of 2"),
        ({"and": [True, {"or": [{"lt": [1, "a"]}]}]}, r"\$\.and\[1\]\.or\[0\]\.lt: expected two"),
        ({"lt": [True, 2]}, "two numbers or two texts"), ({"add": ["a", "b"]}, "two numbers"),
        ({"and": ["yes"]}, r"\$\.and\[0\]: expected a condition"), ({"not": 0}, "a condition"),
        ({"and": True}, "a list"), ({"in": ["a", "abc"]}, "a list"),
        ({"clock": "week"}, "date or datetime"), ({"arg": 3}, "name of an argument"),
        ({"row": ["cars", "c1"]}, r"\$\.row: expected a table"),
        ({"row": ["boats", {"self": "x"}]}, "self"),
        ({"field": [BOAT, "colour"]}, r"\$\.field: expected a column"),
        ({"field": ["b1", "seats"]}, "a row"), ({"field": [BOAT, ["seats"]]}, "a column"),
        ({"count": ["boats", {"colour": "red"}]}, "a column"), ({"count": ["boats", []]}, "object"),
        ({"sum": ["boats", "name", {}]}, "numbers"),
        ({"days_between": ["soon", "later"]}, "two dates"),
        ({"days_between": [3, "2026-01-01"]}, "two dates"),
        ({"date_add": ["soon", 1]}, "a date and days"), ({"date_add": ["2026-01-01", 1.5]}, "days"),
        ({"date_add": ["9999-12-31", 1]}, "days"), ({"date_add": ["2026-01-01", True]}, "days"),
        ({"confirmed": True}, "null"),
        ({"called": ["book", "b1"]}, "an object of arguments"),
        ({"seen": ["book", "x"]}, "a list of 3"),
    ],
)  # fmt: skip
def test_a_wrong_tree_tells_its_place(expr: Any, told: str) -> None:
    with pytest.raises(ExpressionError, match=told):
        evaluate(expr, scope(boat="b1"))


def test_a_condition_is_nothing_but_true_or_false() -> None:
    assert holds({"eq": [1, 1]}, scope())
    assert not holds(None, scope())
    with pytest.raises(ExpressionError, match="a condition"):
        holds("yes", scope())


def test_self_is_the_row_of_an_invariant() -> None:
    assert evaluate({"le": [0, {"self": "seats"}]}, scope(row=TABLES["boats"][0])) is True
    with pytest.raises(ExpressionError, match="column"):
        evaluate({"self": "colour"}, scope(row=TABLES["boats"][0]))


def test_only_earlier_successes_were_called() -> None:
    trace = (call("get", owner="p1"), call("get", failed="no such person", owner="p2"))
    assert evaluate({"called": ["get", {"owner": "p1"}]}, scope(*trace))
    assert evaluate({"called": ["get", {}]}, scope(*trace))
    assert not evaluate({"called": ["get", {"owner": "p2"}]}, scope(*trace))
    assert not evaluate({"called": ["list", {}]}, scope(*trace))


def test_records_are_seen_in_lists_and_pages() -> None:
    page = {"items": [{"boat_id": "b1"}, {"boat_id": "b2"}, {"boat_id": "b1"}], "page": 1}
    trace = (
        call("search", page),
        call("get", {"boat_id": "b3"}),
        call("search", {"boat_id": "b9"}, "no"),
    )
    for boat, seen in (("b2", True), ("b3", False), ("b9", False)):
        assert evaluate({"seen": ["search", "boat_id", boat]}, scope(*trace)) is seen
    assert evaluate({"distinct_seen": ["search", "boat_id"]}, scope(*trace)) == 2
    assert evaluate({"distinct_seen": ["search", "name"]}, scope(*trace)) == 0


def test_a_confirmation_is_used_up_by_a_write() -> None:
    asked = {"confirmed": None}
    assert not evaluate(asked, scope())
    assert evaluate(asked, scope(agree(), call("get"), call("book", failed="full")))
    assert not evaluate(asked, scope(agree(), call("book")))
    assert evaluate(asked, scope(agree(), call("book"), agree()))


numbers = st.integers(-99, 99) | st.floats(-99, 99).map(lambda value: round(value, 3))
scalars = st.none() | st.booleans() | st.text(max_size=3) | numbers
conditions: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.tuples(numbers, numbers).map(lambda pair: {"lt": list(pair)}),
    lambda below: (
        st.lists(below, max_size=3).map(lambda parts: {"and": parts})
        | st.lists(below, max_size=3).map(lambda parts: {"or": parts})
        | below.map(lambda part: {"not": part})
    ),
    max_leaves=8,
)


@given(st.lists(conditions, max_size=4))
def test_and_is_the_negation_of_or_of_negations(parts: list[Any]) -> None:
    negated = {"not": {"or": [{"not": part} for part in parts]}}
    assert holds({"and": parts}, scope()) == holds(negated, scope())


@given(scalars, scalars)
def test_equality_is_symmetric_and_typed(one: Any, other: Any) -> None:
    equal = evaluate({"eq": [one, other]}, scope())
    assert equal == evaluate({"eq": [other, one]}, scope())
    assert evaluate({"eq": [one, one]}, scope())
    if equal:
        assert isinstance(one, bool) == isinstance(other, bool)


@given(numbers, numbers)
def test_one_of_less_equal_and_more_holds(one: float, other: float) -> None:
    ways = [{"lt": [one, other]}, {"eq": [one, other]}, {"lt": [other, one]}]
    assert sum(evaluate(way, scope()) for way in ways) == 1
    assert evaluate({"le": [one, other]}, scope()) == (not evaluate(ways[2], scope()))


anything: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(
            st.sampled_from(["eq", "row", "in", "sum", "not", "seen", "x"]), below, max_size=2
        )
    ),
    max_leaves=10,
)


@given(anything)
def test_whatever_is_written_either_has_a_value_or_is_refused(expr: Any) -> None:
    told = "$"
    try:
        evaluate(expr, scope(boat="b1"))
    except ExpressionError as error:
        told = str(error)
    assert told.startswith("$")
