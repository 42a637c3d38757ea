"""References to parts of answers, and the operations whose answers have parts."""

from __future__ import annotations

from typing import Any

import pytest

from astra.qa.knowledge.operations import evaluate
from astra.qa.knowledge.references import (
    EvaluationError,
    literals,
    references,
    resolve,
)
from astra.records.qa import Operation, Table

ROWS = [
    {"boat": "Blue Heron", "length": 12, "crew": 3},
    {"boat": "Red Kite", "length": 20, "crew": 4},
]
ANSWERS: dict[int, Any] = {
    1: "Ada Finch",
    2: {"length": 12, "crew": 3},
    3: ROWS,
    4: {"rows": ROWS, "next_page": 2},
    5: {"rows": [{"boat": "Grey Gull", "length": 15, "crew": 3}], "next_page": None},
}


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ({"from": 1}, "Ada Finch"),
        ({"from": 3}, ROWS),
        ({"from": 2, "pick": "length"}, 12),
        ({"from": 4, "pick": "next_page"}, 2),
        ({"from": 3, "pick": "boat", "lowest": "length"}, "Blue Heron"),
        ({"from": 3, "pick": "crew", "highest": "length"}, 4),
        ({"from": 3, "pick": "boat", "where": {"crew": 4}}, "Red Kite"),
        ({"from": 4, "pick": "boat", "highest": "crew"}, "Red Kite"),
        ({"from": [4, 5], "pick": "length", "where": {"boat": "Grey Gull"}}, 15),
        ({"from": [4, 5], "pick": "boat", "where": {"crew": 3}, "lowest": "length"}, "Blue Heron"),
        ([{"from": 1}, 5, {"from": 2, "pick": "crew"}], ["Ada Finch", 5, 3]),
        (7, 7),
    ],
)
def test_a_reference_picks_its_part(reference: Any, value: Any) -> None:
    assert resolve(reference, ANSWERS) == value


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ({"from": 9}, "no answer of sub-question 9"),
        ({"from": [4, 9], "pick": "boat", "lowest": "length"}, "no answer of sub-question 9"),
        ({"from": "1"}, "neither a literal nor a reference"),
        ({"from": True}, "neither a literal nor a reference"),
        ({"from": []}, "neither a literal nor a reference"),
        ({"from": 1, "first": 3}, "neither a literal nor a reference"),
        ({"pick": "boat"}, "neither a literal nor a reference"),
        ({"from": [4, 5]}, "picks nothing"),
        ({"from": 1, "pick": "boat"}, "finds no field"),
        ({"from": 2, "pick": "boat"}, "finds no field"),
        ({"from": 3, "pick": "boat"}, "finds no field"),
        ({"from": 3, "pick": ["boat"], "lowest": "length"}, "finds no field"),
        ({"from": 3, "lowest": "length"}, "finds no field"),
        ({"from": 1, "pick": "boat", "lowest": "length"}, "holds no rows"),
        ({"from": 2, "pick": "boat", "where": {"crew": 3}}, "holds no rows"),
        ({"from": 3, "pick": "boat", "lowest": "depth"}, "depth"),
        ({"from": 3, "pick": "boat", "where": {"depth": 1}}, "depth"),
        ({"from": 3, "pick": "boat", "where": "crew"}, "no known way"),
        ({"from": 3, "pick": "boat", "lowest": "crew", "highest": "crew"}, "no known way"),
        ({"from": 3, "pick": "boat", "where": {"crew": 9}}, "0 rows"),
        ({"from": 3, "pick": "boat", "where": {"crew": 9}, "lowest": "crew"}, "0 rows"),
        ({"from": [4, 5], "pick": "boat", "where": {"crew": 3}}, "2 rows"),
        ({"from": [4, 5], "pick": "boat", "lowest": "crew"}, "2 rows"),
        ({"from": [3, 3], "pick": "boat", "highest": "length"}, "2 rows"),
    ],
)
def test_a_reference_to_no_part_or_to_several_is_an_error(reference: Any, why: str) -> None:
    with pytest.raises(EvaluationError, match=why):
        resolve(reference, ANSWERS)


def operation(op: str, arguments: dict[str, Any], select: str = "") -> Operation:
    table = "boats" if select else ""
    return Operation(op=op, relation="a.b", table=table, arguments=arguments, select=select)


def test_ids_and_literals_are_told_apart() -> None:
    mixed = operation(
        "pick",
        {
            "value": {"from": [4, 5], "pick": "boat", "where": {"crew": 3}},
            "names": ["Ada", {"from": 2, "pick": "crew"}],
            "bound": 8,
        },
    )
    assert references(mixed) == (2, 4, 5)
    assert literals(mixed) == [3, "Ada", 8]


def test_the_number_of_the_first_page_is_no_literal_of_the_question() -> None:
    of = {"captain": "Ada Finch"}
    assert literals(operation("page", {**of, "page": 1}, "boat")) == ["Ada Finch"]
    assert literals(operation("page", {**of, "page": 2}, "boat")) == ["Ada Finch", 2]
    assert literals(operation("count", {**of, "page": 1}, "boat")) == ["Ada Finch", 1]


BOATS = Table(
    name="boats",
    columns=("boat", "captain", "length"),
    rows=(*tuple((f"Boat {at}", "Ada Finch", 10 + at) for at in range(5)), ("Kite", "Cole", 9)),
)


def test_rows_are_records_of_all_that_match() -> None:
    found = evaluate(operation("rows", {"captain": "Ada Finch"}, "boat:length"), (BOATS,), {})
    assert found == [{"boat": f"Boat {at}", "length": 10 + at} for at in range(5)]
    with pytest.raises(EvaluationError, match="no row"):
        evaluate(operation("rows", {"captain": "Nobody"}, "boat:length"), (BOATS,), {})


def test_pages_hold_the_rows_in_order_and_lead_on() -> None:
    def page(number: Any, captain: str = "Ada Finch") -> Any:
        asked = operation("page", {"captain": captain, "page": number}, "boat")
        return evaluate(asked, (BOATS,), {1: {"rows": [], "next_page": 2}})

    first, second = page(1), page({"from": 1, "pick": "next_page"})
    assert [row["boat"] for row in first["rows"]] == ["Boat 0", "Boat 1", "Boat 2"]
    assert first["next_page"] == 2
    assert second == {"rows": [{"boat": "Boat 3"}, {"boat": "Boat 4"}], "next_page": None}
    assert page(1, "Cole") == {"rows": [{"boat": "Kite"}], "next_page": None}
    for wrong in (0, 3, -1, True, 1.0, "1"):
        with pytest.raises(EvaluationError):
            page(wrong)


def test_a_full_last_page_leads_nowhere() -> None:
    three = BOATS.model_copy(update={"rows": BOATS.rows[:3]})
    asked = operation("page", {"captain": "Ada Finch", "page": 1}, "boat")
    assert evaluate(asked, (three,), {})["next_page"] is None


def test_a_pick_answers_with_its_part() -> None:
    asked = operation("pick", {"value": {"from": [4, 5], "pick": "boat", "highest": "length"}})
    assert evaluate(asked, (), ANSWERS) == "Red Kite"
    with pytest.raises(EvaluationError):
        evaluate(asked, (), {})
