"""A value written in another form can be read back; what has no such form is left alone."""

from __future__ import annotations

from datetime import time
from typing import Any

import pytest

from astra.text.forms import Form, clock, clocks_in, readings, written


@pytest.mark.parametrize(
    ("form", "plain", "other"),
    [
        (Form.DAY_FIRST, "2024-01-31", "31/01/2024"),
        (Form.MONTH_FIRST, "2024-01-31", "01/31/2024"),
        (Form.DIGITS, "2024-01-31", "20240131"),
        (Form.LAST_FIRST, "Ada Finch", "Finch, Ada"),
        (Form.LAST_FIRST, "Ana María O'Neil-Cruz", "O'Neil-Cruz, Ana María"),
        (Form.HOURS_24, "7:00 PM", "19:00"),
        (Form.HOURS_24, "12:05 AM", "00:05"),
        (Form.HOURS_12, "19:00", "7:00 PM"),
        (Form.HOURS_12, "12:30", "12:30 PM"),
        (Form.HUNDREDTHS, 12.5, 1250),
        (Form.HUNDREDTHS, 0.07, 7),
        (Form.HUNDREDTHS, 237, 23700),
    ],
)
def test_a_value_is_written_in_its_form_and_read_back(form: Form, plain: Any, other: Any) -> None:
    assert written(plain, form) == other
    assert readings(other)[0] == other
    assert plain in readings(other)[1:]


def test_a_code_is_read_back_without_its_case() -> None:
    assert written("Amber McCove", Form.CODE) == "AMBER-MCCOVE"
    assert readings("AMBER-MCCOVE") == ("AMBER-MCCOVE", "amber mccove")
    assert readings("amber_cove_2") == ("amber_cove_2", "amber cove 2")


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (Form.DAY_FIRST, "31 January 2024"),
        (Form.DAY_FIRST, "2024-02-31"),
        (Form.DAY_FIRST, 20240131),
        (Form.LAST_FIRST, "Ada"),
        (Form.LAST_FIRST, "Finch, Ada"),
        (Form.LAST_FIRST, "Room 7"),  # not only words
        (Form.CODE, "琥珀湾"),
        (Form.HUNDREDTHS, "12.5"),
        (Form.HUNDREDTHS, True),
        (Form.HOURS_24, "13:00 PM"),
        (Form.HOURS_24, "7"),
        (Form.HOURS_24, "from 7 PM on"),
        (Form.HOURS_12, "24:00"),
        (Form.HOURS_12, "10:15:30"),
        (Form.HOURS_12, 19),
        (Form.DIGITS, None),
        (Form.LAST_FIRST, ["Ada Finch"]),
    ],
)
def test_what_has_no_such_form_is_not_written(form: Form, value: Any) -> None:
    assert written(value, form) is None


@pytest.mark.parametrize(
    "value", ["2024-01-31", "Ada Finch", "KX 204", "31/02/2024", "a, b, c", "", True, None, 2.5, []]
)
def test_what_is_no_other_form_stands_for_itself_alone(value: Any) -> None:
    assert readings(value) == (value,)


def test_an_ambiguous_date_has_two_readings() -> None:
    assert readings("05/03/2024") == ("05/03/2024", "2024-03-05", "2024-05-03")
    assert readings("13/03/2024") == ("13/03/2024", "2024-03-13")
    assert readings("04/04/2024") == ("04/04/2024", "2024-04-04")


@pytest.mark.parametrize("value", ["7 PM", "7pm", "7:00 p.m.", "19:00", "07:00 pm"])
def test_a_time_of_day_is_one_however_it_is_written(value: str) -> None:
    assert clock(value) == time(19)


def test_the_times_of_a_text_are_found_and_no_other_numbers() -> None:
    text = "Open 9 a.m.-5:30 pm; dinner at 19:30. Ratio 3:2, lap 10:15:30, room 7, 25:00, v1.10:30"
    assert clocks_in(text) == {time(9), time(17, 30), time(19, 30)}
