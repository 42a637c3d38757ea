"""Which values a text says, in which forms, and which it only seems to say."""

from __future__ import annotations

from typing import Any

import pytest

from astra.text.mentions import mentions, misspells

BOOKING = (
    "Book a table at The Mill Room in Ely for Novemeber 26 at 11:15 AM.. Answer no if it is full"
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (BOOKING, "the mill room"),
        (BOOKING, "11:15 AM"),
        (BOOKING, "11:15"),
        ("around 5 PM", "17:00"),
        ("at 5:30 pm", "5:30pm"),
        ("下午3点半出发", "15:30"),
        ("add 2 more bags", 2),
        ("add two bags", 2),
        ("a 5km run", 5),
        ("it costs $420.50", 420.5),
        ("the 1,200 m", 1200),
        ("2.5 million people", 2500000),
        ("on the 1st floor", "1"),
        ("一间两床的房", 2),
        ("一间房", 1),
        ("翠湖苑的要价", "翠湖苑"),
        ("a 'Big Front Seat' of AMBER  cove", "Amber Cove"),
        ("on March 1, 2025", "2025-03-01"),
        ("11/24/2025 to 12/14/2025", "2025-12-14"),
        ("2025-06-14 at 9:30", "2025-06-14T09:30"),
        ("Spring 2025, on March 5", "2025-03-05"),
        ("March 5 till March 20", "March 20"),
        ("5 March", "March 5"),
        ("from 3/3 to 4/4", "4/4"),
        ("3月3日", "3月3号"),
        ("February 6 checking out on the 13", "February 13"),
        ("Nov 24-27", "November 27"),
        ("2025年11月26日", "2025-11-26"),
        ("11月26日", "11月26号"),
        ("one hundred and twenty-five guests", 125),
        ("Two thousand, three hundred and six seats", 2306),
        ("a 25km run", 25),
        ("一百二十个座位", 120),
        ("一共三百二十一元", 321),
        ("价格3万5千元", 35000),
        ("一千人", 1000),
        ("第一百二十", 120),
        ("二十一元", 21),
        ("三百一晚", 1),
        ("会议在14点30分开始", "14:30"),
        ("14点30分开始", "14:30"),
        ("中午12点30分", "12:30"),
        ("中午1点", "13:00"),
        ("12点整", "12:00"),
        ("0点5分", "00:05"),
        ("下午2点", "14:00"),
        ("上午9点半", "09:30"),
        ("凌晨12点半", "00:30"),
        ("今晚8点", "20:00"),
        ("晚上12点", "00:00"),
        ("最晚8点", "08:00"),
    ],
)
def test_a_value_is_said_in_any_usual_form(text: str, value: Any) -> None:
    assert mentions(text, value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("reservation pkr002 in 2021", 1),
        ("reservation pkr002 in 2021", 2),
        ("reservation pkr002 in 2021", "21"),
        ("on 2025-03-01 at 11:15", 1),
        ("version 1.2.3", 2),
        ("1-3 bedrooms", 2),
        ("which one is best, one of the three", 1),
        ("帮我查一下，统一的第一个", 1),
        ("on March 5", "2025-03-05"),
        ("on March 5, 2024", "2025-03-05"),
        ("February 6 checking out on the 13", "February 14"),
        ("in May I may go 5 times", "2025-05-05"),
        ("at 5 PM", "5:00 AM"),
        ("at 11:15 AM", "23:15"),
        ("one hundred and twenty-five guests", 25),
        ("one hundred and twenty-five guests", 100),
        ("a 25km run", 2),
        ("一百二十个座位", 20),
        ("一百二十元", 1),
        ("三百", 3),
        ("二十一元", 20),
        ("万一下雨", 1),
        ("会议在14点30分开始", "02:30"),
        ("中午12点30分", "00:30"),
        ("14点5分", "14:00"),
        ("晚上8点", "08:00"),
        ("晚上12点", "12:00"),
        ("凌晨3点", "15:00"),
        ("最晚8点", "20:00"),
        ("Ada Finchley", "Ada Finch"),
        ("Maria", "Marta"),
        ("翠湖苑的要价", "翠竹苑"),
        ("anything", ""),
        ("", "x"),
        ("no such day", "2025-02-30"),
        ("on", True),
    ],
)
def test_a_value_is_not_said_by_a_part_or_a_likeness(text: str, value: Any) -> None:
    assert not mentions(text, value)


def test_a_slip_of_a_letter_leaves_a_long_word_recognisable() -> None:
    assert misspells(BOOKING, "November 26")
    assert misspells("a resturant in Ely", "restaurant")
    assert misspells("a retsaurant in Ely", "restaurant")
    assert not misspells(BOOKING, "November 27")
    assert not misspells("Maria", "Marta")  # too short: as well another name
    assert not misspells("order PKR002", "PKR003")
    assert not misspells("November", "")


def test_a_name_that_another_one_has_is_no_slip() -> None:
    assert misspells("the fee of Marison Vega", "Marisol Vega")
    assert not misspells("the fee of Marison Vega", "Marisol Vega", ["Marison Vega"])
