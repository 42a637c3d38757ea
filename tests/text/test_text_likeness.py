"""Names that repeat a question's words are told from those that do not."""

from __future__ import annotations

import pytest

from astra.text.likeness import shared_words


@pytest.mark.parametrize(
    ("name", "text", "shared"),
    [
        ("get_gate", "Which gate does flight KX 204 leave from?", ["gate"]),
        ("get_gates", "Which GATE is it?", ["gates"]),
        ("convert_amount", "What is 30 converted to pesos?", ["convert"]),
        ("listPrices", "How is the trolley priced?", ["prices"]),
        ("pricing", "Tell me the prices.", ["pricing"]),
        ("booking_of_cabin", "Book the cabin that is booked.", ["booking", "cabin"]),
        ("query_cities", "In which city is it?", ["cities"]),
        ("stated", "Which state is it in?", ["stated"]),
        ("planning", "What was planned?", ["planning"]),
    ],
)  # fmt: skip
def test_words_are_shared_in_any_regular_form(name: str, text: str, shared: list[str]) -> None:
    assert shared_words(name, text) == shared


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("find_boarding_point", "Which gate does flight KX 204 leave from?"),
        ("get_the_list_of_all", "Get me a list of all that the tool can find."),  # empty words
        ("fetch_quote", "What is the asking price of Amber Cove?"),
        ("get_gate", "闸口在哪里？"),
        ("", "Which gate is it?"),
        ("get_gate", ""),
        ("switch_state", "Turn on the live stats, please."),
        ("read_bedroom", "How many beds does it have?"),  # another word that begins alike
    ],
)
def test_other_words_and_empty_ones_are_not_shared(name: str, text: str) -> None:
    assert shared_words(name, text) == []
