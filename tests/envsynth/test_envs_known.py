"""Calls about the data that a code holds, however it writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from astra.envsynth.known import known_calls, known_values, leaves_of, replaced
from astra.envsynth.near import near_names, shifted

CITIES = ["Rome", "Bern", "Kyiv", "Oslo", "Riga", "Bonn", "Lima", "Cork"]
GOLD = {"origin": "Rome", "target": "Oslo"}
OTHER = {"origin": "Bern", "target": "Kyiv"}
DATA = {
    "dicts": '[{"origin": "Rome", "target": "Oslo", "fare": 90}, '
    '{"origin": "Bern", "target": "Kyiv", "fare": 70}]',
    "dicts_of_other_names": '[{"from": "Rome", "to": "Oslo", "fare": 90}, '
    '{"from": "Bern", "to": "Kyiv", "fare": 70}]',
    "tuples": '[("Rome", "Oslo", 90), ("Bern", "Kyiv", 70)]',
    "keys_of_two": '{("Rome", "Oslo"): 90, ("Bern", "Kyiv"): 70}',
    "nested_keys": '{"Rome": {"Oslo": 90}, "Bern": {"Kyiv": 70}}',
    "nested_rows": '{"Rome": [{"target": "Oslo", "fare": 90}], '
    '"Bern": [{"target": "Kyiv", "fare": 70}]}',
    "rows_in_rows": '[{"origin": "Rome", "fares": [{"target": "Oslo", "fare": 90}]}, '
    '{"origin": "Bern", "fares": [{"target": "Kyiv", "fare": 70}]}]',
    "rows_by_number": '{1: {"origin": "Rome", "target": "Oslo", "fare": 90}, '
    '2: {"origin": "Bern", "target": "Kyiv", "fare": 70}}',
}


@pytest.mark.parametrize("name", sorted(DATA))
def test_whole_rows_are_found_however_data_are_written(name: str) -> None:
    code = f"DATA = {DATA[name]}\n\n\ndef get_fare(origin, target):\n    return 90\n"
    calls = known_calls(code, GOLD, 90)
    assert calls[0] == OTHER
    assert GOLD not in calls
    assert {"origin": "Bern", "target": "Oslo"} in calls
    assert {"origin": "Rome", "target": "Kyiv"} in calls


def test_a_row_that_states_the_gold_answer_is_no_evidence() -> None:
    code = 'DATA = [("Rome", "Oslo", 90), ("Bern", "Kyiv", 90), ("Bern", "Oslo", 70)]\n'
    assert known_calls(code, GOLD, 90)[0] == {"origin": "Bern", "target": "Oslo"}
    assert OTHER not in known_calls(code, GOLD, 90)


def test_values_of_another_type_are_no_other_value() -> None:
    code = 'DATA = {"fares": {"Rome": 90, "Bern": 70}, "tax": 3, "days": {"Rome": "x"}}\n'
    assert known_calls(code, {"city": "Rome"}, 90) == [{"city": "Bern"}]


def test_nested_arguments_are_replaced_where_they_stand() -> None:
    code = (
        'DATA = [{"seat": "A", "from": "Rome", "day": 5}, {"seat": "B", "from": "Bern", "day": 6}]'
    )
    gold = {"seat": "A", "trip": {"from": "Rome", "days": [5]}}
    calls = known_calls(code, gold, 1)
    assert calls[0] == {"seat": "B", "trip": {"from": "Bern", "days": [6]}}
    assert {"seat": "A", "trip": {"from": "Bern", "days": [5]}} in calls


def test_constants_that_a_value_is_compared_with_are_known() -> None:
    code = (
        "def get_fare(city):\n"
        '    if city == "Rome":\n        return 90\n'
        '    if city in ("Bern", "Kyiv"):\n        return 70\n'
        '    match city:\n        case "Oslo":\n            return 50\n'
    )
    found = [call["city"] for call in known_calls(code, {"city": "Rome"}, 90)]
    assert set(found) == {"Bern", "Kyiv", "Oslo"}


@pytest.mark.parametrize(
    ("code", "gold"),
    [
        ("def f(:\n", {"city": "Rome"}),
        ("", {"city": "Rome"}),
        ("DATA = [f(x) for x in y]\n", {"city": "Rome"}),
        ('DATA = {"Bern": 1}\n', {"city": "Rome"}),
        ('DATA = {"Rome": 1}\n', {}),
        ("DATA = " + "[" * 400 + "]" * 400, {"city": "Rome"}),
    ],
)
def test_code_without_such_data_gives_no_calls(code: str, gold: dict[str, Any]) -> None:
    assert known_calls(code, gold, 1) == []


def test_many_rows_are_read_up_to_a_cap() -> None:
    code = f"DATA = {[('Rome', at) for at in range(5000)]}"
    assert len(known_calls(code, {"city": "Rome", "day": 3}, None)) < 1100


def test_the_values_of_a_field_are_those_of_its_name_or_of_the_only_one_like_it() -> None:
    code = f"DATA = {DATA['dicts']}"
    assert known_values(code, "fare") == [90, 70]
    assert known_values(code.replace("fare", "base_fare"), "fare") == [90, 70]
    assert known_values(code, "term") == []
    assert known_values("def f(:", "fare") == []


def test_leaves_and_replacements_are_inverse() -> None:
    value = {"a": [1, {"b": "x"}], "c": None}
    assert dict(leaves_of(value)) == {("a", 0): 1, ("a", 1, "b"): "x", ("c",): None}
    assert replaced(value, {("a", 1, "b"): "y"}) == {"a": [1, {"b": "y"}], "c": None}


def test_deeply_nested_keys_are_read_up_to_the_cap_at_once() -> None:
    """Each level is read in two ways: both of all of 60 levels are more than any machine holds."""
    nested: Any = 90
    for _ in range(60):
        nested = {"Rome": nested}
    assert known_calls(f"DATA = {nested}", {"city": "Oslo"}, None) == []
    code = f"DATA = {DATA['nested_keys']}\nDEEP = {nested}\n"
    assert known_calls(code, GOLD, 90)[0] == OTHER


TOO_LONG = "0x" + "f" * 5000


@pytest.mark.parametrize("odd", ["1e999", TOO_LONG, "b'x'", "...", "1j", "'\\ud800'"])
def test_what_json_cannot_state_is_no_value_of_a_call(odd: str) -> None:
    code = (
        f'DATA = [("Rome", 90.5, "a"), ("Bern", {odd}, "b"), ("Kyiv", 70.5, {odd})]\n'
        f'BY_CITY = {{"Rome": {odd}, {odd}: "Bern"}}\nROWS = [{{"fare": {odd}}}, {{"fare": 7}}]\n'
        f"def f(x):\n    return x == 90.5 or x > {odd}\n"
    )
    for gold in ({"city": "Rome", "fare": 90.5, "class": "a"}, {"fare": 90.5}, {"city": "Rome"}):
        json.dumps(known_calls(code, gold, 1), allow_nan=False, ensure_ascii=False).encode()
    assert known_values(code, "fare") == [7]


def test_a_set_is_read_in_the_same_order_in_every_process() -> None:
    """Text has another hash in each."""
    code = f"DATA = {{{', '.join(repr((city, at)) for at, city in enumerate(CITIES))}}}"
    calls = known_calls(code, {"city": CITIES[0], "day": 0}, None)[: len(CITIES) - 1]
    assert [call["city"] for call in calls] == sorted(CITIES[1:])


@pytest.mark.parametrize(
    ("value", "near"),
    [
        ("9999-12-31", ["9999-12-20"]),
        ("0001-01-01", ["0001-01-04"]),
        ("2024-02-28", ["2024-03-02", "2024-02-17"]),
        (1.5e308, [1.5e308 + 1, 1.5e308 % 100]),
        (7, [8, 17]),
    ],
)
def test_values_near_the_last_ones_are_those_that_there_are(value: Any, near: list[Any]) -> None:
    assert shifted(value) == near


def test_a_run_of_digits_that_is_no_number_is_not_counted_on() -> None:
    assert near_names("Room 9")[-1] == "Room 10"
    assert near_names("Room " + "9" * 5000)[-1] == "9" * 5000 + " Room"
