from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astra.qa.knowledge.operations import (
    EvaluationError,
    Refused,
    after,
    evaluate,
    join,
    writes_of,
)
from astra.qa.knowledge.references import references
from astra.records.qa import Operation, Table

BOATS = Table(
    name="boats",
    columns=("boat", "captain", "length", "launched"),
    rows=(
        ("Blue Heron", "Ada Finch", 12, "2024-01-30"),
        ("Red Kite", "Ben Cole", 20, "2024-03-01"),
        ("Grey Gull", "Ada Finch", 15, "2024-02-10"),
        ("Black Tern", "Ada Finch", 15, "2024-02-11"),
    ),
)
RATES = Table(name="rates", columns=("currency", "rate"), rows=(("pesos", 5), ("euros", 0.5)))
OF_ADA = {"captain": "Ada Finch"}


def make(op: str, arguments: dict[str, Any], select: str = "", table: str = "boats") -> Operation:
    return Operation(op=op, relation="a.b", table=table, arguments=arguments, select=select)


CASES = [
    (make("lookup", {"boat": "Red Kite"}, "captain"), "Ben Cole"),
    (make("lookup", {"boat": {"from": 7}}, "length"), 20),
    (make("list", OF_ADA, "boat"), ["Blue Heron", "Grey Gull", "Black Tern"]),
    (make("count", OF_ADA), 3),
    (make("count", {**OF_ADA, "length": 15}), 2),
    (make("sum", OF_ADA, "length"), 42),
    (make("mean", {"length": 15}, "length"), 15),
    (make("max", OF_ADA, "length"), 15),
    (make("min", OF_ADA, "length"), 12),
    (make("argmin", OF_ADA, "boat:length"), "Blue Heron"),
    (make("argmax", OF_ADA, "boat:launched"), "Black Tern"),
    (make("convert", {"amount": {"from": 8}, "currency": "pesos"}, "rate", "rates"), 60),
    (make("add_days", {"date": "2024-02-25", "days": 7}, table=""), "2024-03-03"),
    (make("days_between", {"start": "2024-03-01", "end": "2024-02-01"}, table=""), 29),
    (make("greater", {"names": ["A", "B"], "values": [3, {"from": 8}]}, table=""), "B"),
    (make("less", {"names": ["A", "B"], "values": [3, {"from": 8}]}, table=""), "A"),
]


@pytest.mark.parametrize(("operation", "answer"), CASES, ids=lambda case: getattr(case, "op", ""))
def test_answers_by_hand(operation: Operation, answer: Any) -> None:
    known = {7: "Red Kite", 8: 12}
    assert evaluate(operation, (BOATS, RATES), known) == answer


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        (make("lookup", {"boat": "No Such"}, "length"), "no row"),
        (make("lookup", OF_ADA, "length"), "3 rows"),
        (make("argmax", OF_ADA, "boat:length"), "2 rows"),
        (make("lookup", {"boat": {"from": 9}}, "length"), "no answer of sub-question 9"),
        (make("lookup", {"boat": {"to": 9}}, "length"), "neither a literal nor a reference"),
        (make("lookup", {"ship": "Red Kite"}, "length"), "ship"),
        (make("lookup", {"boat": "Red Kite"}, "length", "ships"), "no table"),
        (make("sum", OF_ADA, "boat"), "TypeError"),
        (make("add_days", {"date": "soon", "days": 7}, table=""), "ValueError"),
        (make("add_days", {"date": "9999-12-31", "days": 7}, table=""), "OverflowError"),
        (make("multiply", {"amount": "abc", "times": 10**14}, table=""), "str is no number"),
        (make("multiply", {"amount": ["abc"], "times": 10**14}, table=""), "list is no number"),
        (make("multiply", {"amount": True, "times": 3}, table=""), "bool is no number"),
        (make("multiply", {"amount": 10**4000, "times": 10**4000}, table=""), "OverflowError"),
        (make("convert", {"amount": 10**14, "captain": "Ben Cole"}, "boat"), "str is no number"),
        (make("greater", {"names": ["A", "B"], "values": [3, 3]}, table=""), "tie"),
        (make("fly", {}), "unknown op"),
    ],
    ids=lambda case: getattr(case, "op", ""),
)
def test_no_answer_is_an_error_that_says_why(operation: Operation, why: str) -> None:
    with pytest.raises(EvaluationError, match=why):
        evaluate(operation, (BOATS, RATES), {})


def test_references_are_found_inside_lists() -> None:
    values = [{"from": 4}, 3, {"from": 2}]
    assert references(make("less", {"names": ["A"], "values": values})) == (2, 4)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-50, 50)), min_size=1, max_size=20))
def test_aggregates_agree_with_plain_python(rows: list[tuple[str, int]]) -> None:
    table = Table(name="t", columns=("group", "value"), rows=tuple(rows))
    group = rows[0][0]
    values = [value for key, value in rows if key == group]

    def ask(op: str) -> Any:
        return evaluate(make(op, {"group": group}, "value", "t"), (table,), {})

    assert ask("count") == len(values)
    assert ask("sum") == sum(values)
    assert ask("max") == max(values)
    assert ask("min") == min(values)
    assert ask("mean") == pytest.approx(sum(values) / len(values), abs=0.005001)
    assert ask("list") == values


PLACES = Table(name="places", columns=("place", "price"), rows=(("A", 5), ("B", 7)))
HIRES = Table(name="hires", columns=("place", "guest"), rows=(("B", "Ada Finch"),))


def act(op: str, arguments: dict[str, Any]) -> Operation:
    return make(op, arguments, "guest", "hires")


def turned(operation: Operation) -> Operation:
    """The same call with its arguments in the other order, as storing it may leave them."""
    arguments = dict(reversed(operation.arguments.items()))
    return operation.model_copy(update={"arguments": arguments})


def price(place: str, value: int) -> Operation:
    return make("update", {"place": place, "price": value}, "price", "places")


MORE = [
    (make("record", {"boat": "Red Kite"}, "captain:length"), {"captain": "Ben Cole", "length": 20}),
    (make("check", {"boat": "Red Kite", "captain": "Ben Cole"}, "captain"), True),
    (make("check", {"boat": "Red Kite", "captain": "Ada Finch"}, "captain"), False),
    (make("above", {**OF_ADA, "bound": 12}, "boat:length"), ["Grey Gull", "Black Tern"]),
    (make("below", {**OF_ADA, "bound": 15}, "boat:length"), ["Blue Heron"]),
    (make("sort", OF_ADA, "boat:launched"), ["Blue Heron", "Grey Gull", "Black Tern"]),
    (make("multiply", {"amount": {"from": 8}, "times": 3}, table=""), 36),
    (make("weekday", {"date": "2024-02-29"}, table=""), "Thursday"),
    (act("insert", {"place": "A", "guest": "Ben Cole"}), "Ben Cole"),
    (act("delete", {"place": "B"}), "Ada Finch"),
    (price("B", 9), 9),
]


@pytest.mark.parametrize(("operation", "answer"), MORE, ids=lambda case: getattr(case, "op", ""))
def test_further_answers_by_hand(operation: Operation, answer: Any) -> None:
    known = {7: "Red Kite", 8: 12}
    tables = (BOATS, RATES, PLACES, HIRES)
    for variant in (operation, turned(operation)):
        assert evaluate(variant, tables, known) == answer


@pytest.mark.parametrize(
    ("operation", "already", "standing"),
    [
        (act("insert", {"place": "B", "guest": "Ben Cole"}), False, "Ada Finch"),
        (act("insert", {"place": "B", "guest": "Ada Finch"}), True, "Ada Finch"),
        (price("A", 5), True, 5),
    ],
)
def test_a_write_that_the_state_refuses(operation: Operation, already: bool, standing: Any) -> None:
    for variant in (operation, turned(operation)):
        with pytest.raises(Refused) as refused:
            evaluate(variant, (PLACES, HIRES), {})
        assert refused.value.already is already
        assert refused.value.standing == standing


def test_what_is_not_there_is_not_removed_and_half_a_row_not_added() -> None:
    for operation in (act("delete", {"place": "A"}), act("insert", {"place": "A"})):
        with pytest.raises(EvaluationError):
            evaluate(operation, (PLACES, HIRES), {})


def test_writes_change_their_rows_and_joins_with_them() -> None:
    both = join("hires+places", [HIRES, PLACES])
    state = (PLACES, HIRES, both)
    writes = writes_of(act("insert", {"place": {"from": 3}, "guest": "Ben"}), {3: "A"})
    same, hires, view = after(state, writes)
    assert same is PLACES
    assert hires.rows == (("B", "Ada Finch"), ("A", "Ben"))
    assert view.rows == (("B", "Ada Finch", 7), ("A", "Ben", 5))
    cheaper, _, view = after(state, writes_of(price("B", 4), {}))
    assert cheaper.rows == (("A", 5), ("B", 4))
    assert view.rows == (("B", "Ada Finch", 4),)
    _, hires, view = after(state, writes_of(act("delete", {"place": "B"}), {}))
    assert hires.rows == view.rows == ()
    assert writes_of(make("lookup", {"place": "B"}, "price", "places"), {}) == ()
    for operation in (price("B", 4), act("insert", {"place": "A", "guest": "Ben"})):
        assert writes_of(turned(operation), {}) == writes_of(operation, {})
