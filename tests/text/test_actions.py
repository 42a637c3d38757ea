"""Which requests ask that something be done."""

from __future__ import annotations

import pytest

from astra.text.actions import asks_for_action


@pytest.mark.parametrize(
    "text",
    [
        "Book a room at the Mill Inn from May 3 to May 5.. If there is none, tell me",
        "Can you help me pay my parking ticket online? Please let me know if there are issues.",
        "could you please pay my court ticket for me?",
        "Please cancel order 7.",
        "I'd like to reserve a table for two.",
        "I want to buy a 1939 atlas.",
        "Find and book a kayak tour in Ely.",
        "Add the blue paint to my cart.",
        "I am a nurse. Register me for the course.",
        "Help me apply for three positions.",
        "请帮我预订翠湖酒店的一间房。",
        "麻烦取消我的预订",
        "请把房间换成大床房",
    ],
)
def test_a_request_to_do_something_is_an_action(text: str) -> None:
    assert asks_for_action(text)


@pytest.mark.parametrize(
    "text",
    [
        "What does it cost to book a room at the Mill Inn?",
        "I want to buy a bike. What does the cheapest one cost?",
        "Ada (user 7) wants to add a bag. What is the charge?",
        "Order the hotels by price.",
        "Update me on flight 12.",
        "Add 12 and 30.",
        "Can you help me find a house with a pay phone?",
        "How old is the book of Ada Finch?",
        "取消订单A12的理由是什么？",
        "翠湖酒店的预订价是多少？",
        "帮我查一下预订号",
        "",
    ],
)
def test_a_request_to_find_something_out_is_none(text: str) -> None:
    assert not asks_for_action(text)
