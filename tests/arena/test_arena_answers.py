from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astra.arena.answers import final_matches, is_small_domain, matches, parse_final, render_answer
from astra.records.qa import Answer, AnswerType


def answer(kind: str, value: object, **extra: object) -> Answer:
    return Answer.model_validate({"type": kind, "value": value, **extra})


@pytest.mark.parametrize(
    ("gold", "value", "expected"),
    [
        (answer("number", 2), 2, True),
        (answer("number", 2), 2.0, True),
        (answer("number", 2), 42, False),
        (answer("number", 2), "2", False),
        (answer("number", 1), True, False),
        (answer("number", 3.14, tolerance=0.01), 3.15, True),
        (answer("number", 3.14, tolerance=0.01), 3.16, False),
        (answer("number", 0.3), 0.1 + 0.2, True),
        (answer("number", 10**400), 10**400, True),
        (answer("number", 1.5), 10**400, False),
        (answer("number", 5, unit="km"), {"value": 5, "unit": "KM"}, True),
        (answer("number", 5, unit="km"), {"value": 5, "unit": "m"}, False),
        (answer("number", 5, unit="km"), {"value": 5, "unit": "kilometres"}, True),
        (answer("number", 5), {"value": 5, "unit": "m"}, False),
        (answer("number", 5), math.nan, False),
        (answer("number", 5), None, False),
        (answer("boolean", True), True, True),
        (answer("boolean", True), 1, False),
        (answer("boolean", False), 0, False),
        (answer("date", "2024-02-29"), "2024-02-29", True),
        (answer("date", "2024-02-29"), "2024-02-29T00:00:00", True),
        (answer("date", "2024-02-29"), "2024-02-29T05:00:00", False),
        (answer("date", "2024-02-29"), "2024-02-30", False),
        (answer("date", "2024-02-29"), 20240229, False),
        (answer("string", "Amber Cove"), "amber  cove", True),
        (answer("string", "Amber Cove"), "the Amber Cove", False),
        (answer("string", "Amber Cove"), ["Amber Cove"], False),
        (answer("enum", "sold"), "Sold", True),
        (answer("enum", "sold"), "unsold", False),
        (answer("list", [1, 2]), [1, 2], True),
        (answer("list", [1, 2]), [2, 1], False),
        (answer("list", [1, 2], ordered=False), [2, 1], True),
        (answer("list", [1, 1, 2], ordered=False), [1, 2, 2], False),
        (answer("list", [1, 2]), [1, 2, 3], False),
        (answer("list", [1, 2]), "1; 2", False),
        (answer("record", {"a": 1, "b": "X"}), {"b": "x", "a": 1}, True),
        (answer("record", {"a": 1}), {"a": 1, "b": 2}, False),
        (answer("record", {"a": 1}), {}, False),
    ],
)
def test_matches_compares_types_never_text(gold: Answer, value: object, expected: bool) -> None:
    assert matches(gold, value) is expected


@pytest.mark.parametrize(
    ("gold", "text", "expected"),
    [
        (answer("number", 1234.5), "1,234.5", True),
        (answer("number", 1234.5), "1,23,4.5", False),
        (answer("number", 812), "812.", True),
        (answer("number", 812), "about 812", False),
        (answer("number", 812), "812 or 813", False),
        (answer("number", 5, unit="km"), "5 km", True),
        (answer("number", 5, unit="$"), "$5", True),
        (answer("number", 420, unit="USD"), "$420", True),
        (answer("number", 420, unit="USD"), "420 US dollars.", True),
        (answer("number", 1420, unit="USD"), "US$1,420.00", True),
        (answer("number", -5, unit="USD"), "-$5", True),
        (answer("number", 420, unit="USD"), "420美元", True),
        (answer("number", 5, unit="USD/night"), "$5 per night", True),
        (answer("number", 420, unit="USD"), "€420", False),
        (answer("number", 420, unit="USD"), "420 EUR", False),
        (answer("number", 420, unit="USD"), "$420 EUR", False),
        (answer("number", 420, unit="USD"), "$ 42", False),
        (answer("number", 420, unit="USD"), "420 or 421 USD", False),
        (answer("number", 420, unit="USD"), "--420 USD", False),
        (answer("number", 5, unit="km"), "5公里", True),
        (answer("number", 5, unit="km"), "5 km more", False),
        (answer("number", 5, unit="km"), "5 m", False),
        (answer("number", 5, unit="km"), "km", False),
        (answer("number", 5, unit="km"), "", False),
        (answer("list", [5, 7], unit="km"), "5 km; 7 kilometres", True),
        (answer("list", [5, 7], unit="km"), "5 km; 7 miles", False),
        (answer("record", {"far": 5}, unit="km"), "far: 5 kilometers", True),
        (answer("number", 5), "5 km", False),
        (answer("number", 5), "1e999", False),
        (answer("boolean", True), "Yes.", True),
        (answer("boolean", False), "false", True),
        (answer("boolean", False), "not yes", False),
        (answer("date", "2024-05-01"), "2024-05-01", True),
        (answer("date", "2024-05-01"), "1 May 2024", True),
        (answer("date", "2024-05-01"), "May 1, 2024", True),
        (answer("date", "2024-05-01"), "01/05/2024", False),
        (answer("number", 250, unit="ms"), "250 ms", True),
        (answer("number", 250, unit="ms"), "250 m", False),
        (answer("number", 250, unit="ms"), "250 metres", False),
        (answer("number", 5, unit="MW"), "5 mW", False),
        (answer("number", -5), "\u22125", True),
        (answer("number", -5), "\uff0d5", True),
        (answer("number", -1234.5), "\u22121,234.5", True),
        (answer("number", -5, unit="USD"), "\u2212$5", True),
        (answer("number", -5, unit="°C"), "\u22125℃", True),
        (answer("list", [-5, 3]), "\u22125; 3", True),
        (answer("number", 5), "\u22125", False),
        (answer("number", -5), "3\u22125", False),
        (answer("number", -5), "\u2212\u22125", False),
        (answer("boolean", True), "是", True),
        (answer("boolean", True), "是的。", True),
        (answer("boolean", False), "否", True),
        (answer("boolean", False), "不是。", True),
        (answer("record", {"sold": False}), "sold: 否", True),
        (answer("boolean", True), "不是", False),
        (answer("boolean", True), "否", False),
        (answer("boolean", False), "是", False),
        (answer("boolean", True), "是否", False),
        (answer("boolean", False), "是否", False),
        (answer("boolean", True), "是不是", False),
        (answer("boolean", False), "不是否", False),
        (answer("string", "true"), "是", False),
        (answer("date", "2024-03-04"), "2024年3月4日", True),
        (answer("date", "2024-03-04"), "2024年03月04日。", True),
        (answer("date", "2024-03-04"), "2024 年 3 月 4 日", True),
        (answer("date", "2024-03-04"), "2024年3月4号", True),
        (answer("date", "2024-03-04"), "2024年4月3日", False),
        (answer("date", "2024-03-04"), "3月4日", False),
        (answer("date", "2024-03-04"), "24年3月4日", False),
        (answer("date", "2024-03-04"), "2024年3月4日5点", False),
        (answer("date", "2024-03-04"), "2024年3月4日或5日", False),
        (answer("date", "2024-03-04"), "2024年3月34日", False),
        (answer("string", "Acme Inc."), "Acme Inc.", True),
        (answer("string", "Amber Cove"), '"Amber Cove".', True),
        (answer("string", "Amber Cove"), "Amber Cove or Jade Mill", False),
        (answer("list", [812, "Amber Cove"]), "812; Amber Cove", True),
        (answer("list", [812, "Amber Cove"]), "Amber Cove; 812", False),
        (answer("list", ["A", "B"], ordered=False), "B; A", True),
        (answer("list", [1, 2]), "[1, 2]", True),
        (answer("list", [1, 2]), "1; 2; 3", False),
        (answer("list", [1, 2]), "", False),
        (answer("record", {"price": 5, "sold": True}), "price: 5; sold: yes", True),
        (answer("record", {"price": 5}), '{"price": 5}', True),
        (answer("record", {"price": 5}), "price: 5; price: 5", False),
        (answer("record", {"price": 276, "stock": 93}), "276; 93", True),
        (answer("record", {"price": 276, "stock": 93}), "93; 276", False),  # the keys' order
        (answer("record", {"price": 276, "stock": 93}), "276", False),
        (answer("record", {"price": 276, "stock": 93}), "276; 93; 93", False),
        (answer("record", {"price": 276, "stock": 93}), "price: 276; 93", False),  # half and half
        (answer("record", {"price": 276, "stock": 93}), "cost: 276; left: 93", False),
        (answer("record", {"opens": "07:30", "seats": 12}), "07:30; 12", True),
        (answer("record", {"opens": "07:30", "seats": 12}), "opens: 07:30; seats: 12", True),
        (answer("record", {"opens": "07:30", "seats": 12}), "", False),
        (answer("string", "x"), "", False),
    ],
)
def test_final_text_is_read_as_the_answers_type(gold: Answer, text: str, expected: bool) -> None:
    assert final_matches(gold, text) is expected


CLASSES = answer("list", ["B-2", "A-1"], ordered=False)
TIMETABLE = answer("list", [["B-2", "A-1"], "Room 4"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[["B-2", "A-1"], "Room 4"]', True),
        ('[["A-1", "B-2"], "Room 4"]', True),
        ('["A-1", "B-2"]; Room 4', True),
        ("A-1; B-2; room 4", True),
        ('["Room 4", ["B-2", "A-1"]]', False),
        ('["A-1", "B-2", "Room 4"]', False),
        ("A-1; A-1; Room 4", False),
        ("A-1; Room 4", False),
        ("A-1; B-2; Room 4; Room 5", False),
        ('["A-1", "B-2"; Room 4', False),
        ("[; Room 4", False),
    ],
)
def test_a_list_in_a_list_is_compared_as_the_answer_that_it_is(text: str, expected: bool) -> None:
    assert final_matches(TIMETABLE, text, [CLASSES, answer("string", "Room 4")]) is expected


DAY, SLOTS = answer("date", "2025-11-04"), answer("number", 6, unit="slots")


@pytest.mark.parametrize(
    ("values", "text", "expected"),
    [
        (["2025-11-04", 6], "2025-11-04; 6 slots", True),
        (["2025-11-04", 6], "November 4, 2025; 6", True),
        (["2025-11-04", 6], "2025-11-04; 6 seats", False),
        (["2025-11-04", 6], "2025-11-04; $6", False),
        (["2025-11-04", 6], "6 slots; 2025-11-04", False),
        (["2025-11-04", 6], "2025-11-04; 6 slots; 6 slots", False),
        (["2025-11-04", 6], "2025-11-04", False),
        (["19:35", "Sala 9"], "7:35 PM; Sala 9", True),
        (["19:35", "Sala 9"], "7:35 AM; Sala 9", False),
        (["19:35", "Sala 9"], "Sala 9; 7:35 PM", False),
    ],
)
def test_an_item_of_a_list_is_read_as_the_answer_that_it_is(
    values: list[Any], text: str, expected: bool
) -> None:
    assert final_matches(answer("list", values), text, [DAY, SLOTS]) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("6 slots; 4 November 2025; Ada", True),
        ("Ada; 2025-11-04; 6", True),
        ("Ada; 2025-11-04; 2025-11-04", False),
        ("Ada; 2025-11-04; 7 slots", False),
        ('["Ada", 6, "2025-11-04"]', True),
    ],
)
def test_without_an_order_items_of_several_types_stand_anywhere(text: str, expected: bool) -> None:
    gold = answer("list", ["2025-11-04", 6, "Ada"], ordered=False)
    assert final_matches(gold, text, [DAY, SLOTS]) is expected


@pytest.mark.parametrize(
    ("record", "text", "expected"),
    [
        ({"price": 276, "stock": 93}, "$276; 93", True),
        ({"price": 276, "stock": 93}, "price: $276; stock: 93", True),
        ({"price": 276, "stock": 93}, "$276 or so; 93", False),
        ({"price": 276, "stock": 93}, "$93; 276", False),
        ({"starts": "19:35", "room": "Sala 9"}, "7:35 PM; Sala 9", True),
        ({"starts": "19:35", "room": "$9"}, "19:35; 9", False),
        ({"next": None, "room": "Sala 9"}, "None; Sala 9", False),
    ],
)
def test_a_field_of_a_record_is_read_as_an_answer_alone(
    record: dict[str, Any], text: str, expected: bool
) -> None:
    assert final_matches(answer("record", record), text) is expected


def test_of_a_compound_unit_what_is_counted_says_enough() -> None:
    rate = answer("number", 39, unit="USD per night")
    for text, expected in (("$39", True), ("39 USD/night", True), ("€39", False), ("39 nights", 0)):
        assert final_matches(rate, text) is bool(expected)
    assert final_matches(answer("number", 1700, unit="ARS"), "1,700 Argentine pesos")
    assert final_matches(answer("string", "19:35"), "7:35 p.m.")
    assert not final_matches(answer("string", "19:35"), "8:35 p.m.")


def test_of_an_inner_list_the_order_counts_unless_its_answer_has_none() -> None:
    turned = '[["A-1", "B-2"], "Room 4"]'
    assert not final_matches(TIMETABLE, turned)
    assert not final_matches(TIMETABLE, turned, [CLASSES.model_copy(update={"ordered": True})])
    assert not final_matches(TIMETABLE, '[["A-1"], "Room 4"]', [CLASSES])


@pytest.mark.parametrize(
    "gold",
    [
        TIMETABLE,
        answer("list", [{"id": "A-1", "seats": 3}, {"id": "B-2", "seats": 4}], ordered=False),
        answer("list", [{"rows": [], "next_page": None}, 3]),
    ],
)
def test_an_answer_of_lists_or_records_reads_its_own_rendering(gold: Answer) -> None:
    assert final_matches(gold, render_answer(gold))


def test_the_last_answer_block_counts() -> None:
    assert parse_final("<answer>1</answer> no: <answer> 2\n</answer> bye") == "2"
    assert parse_final("  just text ") == "just text"
    assert parse_final("<answer>unclosed") == "<answer>unclosed"


def test_small_domains() -> None:
    assert is_small_domain(answer("boolean", True))
    assert is_small_domain(answer("enum", "a"))
    assert not is_small_domain(answer("enum", "a", domain_size=20))
    assert is_small_domain(answer("number", 3, domain_size=19))
    assert not is_small_domain(answer("number", 3))


names = st.from_regex(r"[A-Z][a-z]{1,8}( [A-Z][a-z]{1,8})?", fullmatch=True)
numbers = st.one_of(
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(lambda x: round(x, 4)),
)
answers = st.one_of(
    numbers.map(lambda value: answer("number", value)),
    names.map(lambda value: answer("string", value)),
    st.booleans().map(lambda value: answer("boolean", value)),
    st.dates().map(lambda value: answer("date", value.isoformat())),
    st.lists(st.one_of(names, numbers), min_size=1, max_size=4).map(
        lambda value: answer("list", value)
    ),
    st.dictionaries(names, numbers, min_size=1, max_size=3).map(
        lambda value: answer("record", value)
    ),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


@given(answers)
def test_an_answer_matches_itself_and_its_own_rendering(gold: Answer) -> None:
    assert matches(gold, gold.value)
    assert matches(gold, json.loads(json.dumps(gold.value)))
    assert final_matches(gold, render_answer(gold))
    assert final_matches(gold, parse_final(f"So: <answer>{render_answer(gold)}</answer>"))


@given(answers, json_values)
def test_no_value_crashes_and_a_match_has_the_right_type(gold: Answer, value: object) -> None:
    if matches(gold, value):
        expected = {
            AnswerType.NUMBER: (int, float, dict),
            AnswerType.BOOLEAN: (bool,),
            AnswerType.LIST: (list,),
            AnswerType.RECORD: (dict,),
        }.get(gold.type, (str,))
        assert isinstance(value, expected)


@given(answers, st.text(max_size=20))
def test_no_text_crashes(gold: Answer, text: str) -> None:
    final_matches(gold, text)


@given(st.integers(0, 10**6), st.integers(1, 9))
def test_a_number_inside_a_longer_one_never_matches(value: int, digit: int) -> None:
    assert not matches(answer("number", value), int(f"{digit}{value}"))
    assert not final_matches(answer("number", value), f"{digit}{value}")
