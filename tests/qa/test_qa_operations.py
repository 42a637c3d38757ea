from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astra.qa.operations import (
    EvaluationError,
    Refused,
    after,
    evaluate,
    join,
    references,
    writes_of,
)
from astra.qa.reading import _answer
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
def test_answers_by_hand_and_the_teacher_agree(operation: Operation, answer: Any) -> None:
    known = {7: "Red Kite", 8: 12}
    assert evaluate(operation, (BOATS, RATES), known) == answer
    tables = {
        t.name: [dict(zip(t.columns, row, strict=True)) for row in t.rows] for t in (BOATS, RATES)
    }
    assert _answer(operation.model_dump(), tables, known) == answer


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


PLACES = Table(
    name="places",
    columns=("place", "guest", "price"),
    rows=(("A", "nobody", 5), ("B", "Ada Finch", 7)),
)


def act(op: str, arguments: dict[str, Any], select: str = "guest:nobody") -> Operation:
    return make(op, arguments, select, "places")


MORE = [
    (make("record", {"boat": "Red Kite"}, "captain:length"), {"captain": "Ben Cole", "length": 20}),
    (make("check", {"boat": "Red Kite", "captain": "Ben Cole"}, "captain"), True),
    (make("check", {"boat": "Red Kite", "captain": "Ada Finch"}, "captain"), False),
    (make("above", {**OF_ADA, "bound": 12}, "boat:length"), ["Grey Gull", "Black Tern"]),
    (make("below", {**OF_ADA, "bound": 15}, "boat:length"), ["Blue Heron"]),
    (make("sort", OF_ADA, "boat:launched"), ["Blue Heron", "Grey Gull", "Black Tern"]),
    (make("multiply", {"amount": {"from": 8}, "times": 3}, table=""), 36),
    (make("weekday", {"date": "2024-02-29"}, table=""), "Thursday"),
    (act("reserve", {"place": "A", "guest": "Ben Cole"}), {"place": "A", "guest": "Ben Cole"}),
    (act("cancel", {"place": "B"}), {"place": "B", "guest": "nobody"}),
    (act("update", {"place": "B", "price": 9}, "price"), {"place": "B", "price": 9}),
]


@pytest.mark.parametrize(("operation", "answer"), MORE, ids=lambda case: getattr(case, "op", ""))
def test_further_answers_by_hand_and_the_teacher_agree(operation: Operation, answer: Any) -> None:
    known = {7: "Red Kite", 8: 12}
    tables = (BOATS, RATES, PLACES)
    assert evaluate(operation, tables, known) == answer
    rows = {t.name: [dict(zip(t.columns, row, strict=True)) for row in t.rows] for t in tables}
    assert _answer(operation.model_dump(), rows, known) == answer


@pytest.mark.parametrize(
    ("operation", "already", "standing"),
    [
        (act("reserve", {"place": "B", "guest": "Ben Cole"}), False, "Ada Finch"),
        (act("reserve", {"place": "B", "guest": "Ada Finch"}), True, "Ada Finch"),
        (act("cancel", {"place": "A"}), True, "nobody"),
        (act("update", {"place": "A", "price": 5}, "price"), True, 5),
    ],
)
def test_a_write_that_the_state_refuses(operation: Operation, already: bool, standing: Any) -> None:
    with pytest.raises(Refused) as refused:
        evaluate(operation, (PLACES,), {})
    assert refused.value.already is already
    column = operation.select.partition(":")[0]
    assert refused.value.record[column] == standing


def test_writes_change_their_cell_and_joins_with_it() -> None:
    owners = Table(name="owners", columns=("guest", "age"), rows=(("Ada Finch", 52), ("Ben", 41)))
    both = join("places+owners", [PLACES, owners])
    reserve = act("reserve", {"place": "A", "guest": "Ben"})
    writes = writes_of(reserve, evaluate(reserve, (PLACES,), {}))
    places, same, view = after((PLACES, owners, both), writes)
    assert places.rows == (("A", "Ben", 5), ("B", "Ada Finch", 7))
    assert same is owners
    assert view.rows == (("A", "Ben", 5, 41), ("B", "Ada Finch", 7, 52))
