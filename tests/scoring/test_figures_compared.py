"""Numbers, dates and addresses compare as what they are, however they are written."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from astra.scoring.lexical import legible, occurs, tokens
from astra.text.figures import addresses, canonical, dates, same_address, spelled_numbers, urls


def stated(value: Any, source: str) -> bool:
    return occurs(value, source, tokens(source))


@pytest.mark.parametrize(
    ("value", "source"),
    [
        (3, "the 3 nearest"),
        (3, "three homes"),
        (25, "twenty-five homes"),
        (25, "Twenty five homes"),
        (1000, "1,000 euros"),
        (1000000, "a million"),
        (2500000, "2.5 million"),
        (250000, "about 250k"),
        (36, "three dozen eggs"),
        (1.5, "1.50 m"),
        (48.0, "48 degrees"),
        (1e-7, "0.0000001"),
        (-97.3964, "at 27.8006,-97.3964"),
        (27.8006, "at 27.8006,-97.3964"),
        (5, "5km"),
        (3, "未来三天"),
        (12, "十二个"),
        (50000, "5万"),
        (0, "0 items"),
        ("1000", "1,000 euros"),
    ],
)
def test_a_number_is_stated_by_the_same_number(value: float, source: str) -> None:
    assert stated(value, source)


@pytest.mark.parametrize(
    ("value", "source"),
    [
        (3, "39.7392"),
        (4, "-104.9903"),
        (1, "2021"),
        (1, "1,000"),
        (1, "a home"),
        (100, "1,000"),
        (10, "1.0"),
        (97.3964, "at 27.8006,-97.3964"),
        (-5, "5 degrees"),
        (1000, "a million"),
        (7, "十二个"),
        (15, "1.5"),
    ],
)
def test_a_number_is_not_stated_by_a_part_of_another(value: float, source: str) -> None:
    assert not stated(value, source)


@pytest.mark.parametrize(
    "source",
    [
        "on March 1st 2025", "on March 1, 2025", "1 March 2025", "the 1st of March 2025",
        "2025-03-01", "2025/3/1", "3/1/2025", "1.3.2025", "2025年3月1日", "1 Mar 2025",
    ],
)  # fmt: skip
def test_a_date_is_stated_in_any_usual_form(source: str) -> None:
    assert date(2025, 3, 1) in dates(source)
    assert stated("2025-03-01", f"What is on {source}?")


@pytest.mark.parametrize(
    "source", ["2025-01-03", "March 1st", "March 2025", "on 1/2/2025", "31/31/2025", "2025-03-011"]
)
def test_another_date_or_a_part_of_one_does_not_state_it(source: str) -> None:
    assert not stated("2025-03-01", source)


def test_a_day_that_no_month_has_is_stated_only_as_it_stands() -> None:
    assert stated("2025-02-30", "on 2025-02-30")
    assert not stated("2025-02-30", "30 February 2025")


@pytest.mark.parametrize(
    ("value", "source", "expected"),
    [
        ("Oslo", "homes in Oslo?", True),
        ("oslo", "homes in OSLO", True),
        ("Oslo", "homes in Oslovia", False),
        ("Oslo Bay", "homes in Oslo", False),
        ("chicken recipe", "recipes with chicken", True),
        ("JFK", "from New York", False),
        ("C-17", "order C-17.", True),
        ("C-1", "order C-17.", False),
        ("C-17", "order 17 of section C", False),
        ("https://a.example/queue", "see https://a.example/queues", False),
        ("ana@b.example", "to Ana (ana@b.example)", True),
        ("27.8006,-97.3964", "at 27.8006, -97.3964", True),
        ("北京", "北京的房子", True),
        ("上海", "北京的房子", False),
        ("SELECT count(*) FROM homes WHERE place = 'Oslo'", "How many homes in Oslo?", True),
        ("SELECT count(*) FROM homes WHERE place = 'Bergen'", "How many homes in Oslo?", False),
        (["Oslo", "Bergen"], "from Oslo to Bergen", True),
        ({"city": "Rome"}, "from Oslo to Bergen", False),
        (True, "", True),
        (None, "", True),
        ("", "", True),
    ],
)
def test_texts_are_stated_as_wholes(value: Any, source: str, expected: bool) -> None:
    assert stated(value, source) is expected


def test_numbers_of_a_list_in_a_result_do_not_run_together() -> None:
    assert stated(200, legible("[100,200]"))
    assert not stated(100200, legible("[100,200]"))
    assert legible('{"city":"K\\u00f6ln"}') == '{"city": "Köln"}'
    for text in ("[cut", "plain [1,2]", "", "[" * 100_000):
        assert legible(text) == text


def test_canonical_numbers_and_words() -> None:
    assert [canonical(n) for n in ("007", "1.50", "1,000.0", "-0.0", "\u22125")] == [
        "7", "1.5", "1000", "0", "-5",
    ]  # fmt: skip
    assert spelled_numbers("an apple a day") == set()


@pytest.mark.parametrize(
    ("source", "numbers"),
    [
        ("one hundred and twenty-five guests", {125}), ("a hundred and one", {101}),
        ("one-hundred-and-six", {106}), ("twelve hundred", {1200}),
        ("five hundred thousand", {500000}), ("ninety-nine", {99}),
        ("two million, three hundred thousand and five", {2300005}), ("two dozen", {24}),
        ("one hundred and two hundred", {100, 200}), ("one thousand, five of them", {1000, 5}),
        ("between one thousand and two thousand", {1000, 2000}), ("a million", {10**6}),
        ("twenty, five hundred", {20, 500}),
        ("between five hundred and two thousand", {500, 2000}), ("one two three", {1, 2, 3}),
        ("between two hundred and fifty and three hundred", {250, 300}), ("hundreds", set()),
        ("two or three hundred", {2, 300}), ("twenty and five", {20, 5}), ("sixteen", {16}),
        ("一百二十个座位", {120}), ("三百", {300}), ("两千零八", {2008}), ("一百零五", {105}),
        ("一万零五十", {10050}), ("一千二百三十四万五千六百七十八", {12345678}),
        ("三亿", {300000000}),
        ("一亿二千万", {120000000}), ("一万亿", {10**12}), ("3万5千", {35000}),
        ("1.5亿", {150000000}),
        ("1亿2000万", {120000000}), ("二〇二五年", {2025}), ("三百五", {350}), ("两万三", {23000}),
        ("三百五个", {300, 5}), ("三百一晚", {300, 1}), ("三四个", {3, 4}), ("十七八个", {17, 18}),
        ("一两百人", {100, 200}), ("一百两百", {100, 200}), ("百分之二十", {20}), ("千万别", set()),
        ("5千克", {5}), ("五千克", {5}), ("十二月二十五日", {12, 25}), ("-5万", {-50000}),
    ],
)  # fmt: skip
def test_a_run_of_number_words_is_one_number(source: str, numbers: set[int]) -> None:
    assert spelled_numbers(source) == set(map(str, numbers))


def test_long_rows_of_digits_are_read_at_once() -> None:
    assert spelled_numbers("1" * 20_000) == {"1" * 20_000}
    assert spelled_numbers("1," * 20_000 + "2万") == {"1", "20000"}


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("https://www.A.example/x/", "http://a.example/x", True),
        ("https://a.example/a%20b", "a.example/a b", True),
        ("https://a.example/x", "https://a.example/y", False),
        ("https://a.example/x", "https://a.example/x/1", False),
        ("https://a.example", "https://a.example.org", False),
    ],
)
def test_addresses_are_the_same_up_to_trifles(left: str, right: str, same: bool) -> None:
    assert (same_address(left) == same_address(right)) is same


def test_urls_end_before_punctuation() -> None:
    text = "See https://a.example/x. (http://b.example/y) 或 https://c.example/z。 www.d.example!"
    assert urls(text) == [
        "https://a.example/x", "http://b.example/y", "https://c.example/z", "www.d.example",
    ]  # fmt: skip


def test_addresses_are_found_with_and_without_a_scheme_in_any_text() -> None:
    text = "见https://a.example/x，或者b.example/y。 See www.c.example, e.g. d.example:80/z?q=1."
    assert addresses(text) >= {"a.example/x", "b.example/y", "c.example", "d.example:80/z?q=1"}
    long = "a" * 200_000
    assert addresses(long) == tokens(long) - {long} == set()
