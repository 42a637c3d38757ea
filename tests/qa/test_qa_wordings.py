"""What the offline teacher says for choices, pages and twins, and the words it exchanges."""

from __future__ import annotations

import random
from typing import Any

import pytest

from astra.prompting import render
from astra.qa.offline import phrases, phrases_zh
from astra.qa.offline.synonyms import CHINESE, ENGLISH, QUESTIONS, own_words, reworded
from astra.qa.qa import QuestionWriter
from astra.qa.questions.plan import QuestionPlan

CHOICE = {
    "field": "boat",
    "phrase": "the cheapest boat of {x}",
    "where": "",
    "lowest": "price",
    "highest": "",
    "value": None,
}


def step(id: int, op: str, relation: str, phrase: str, **details: Any) -> dict[str, Any]:
    return {
        "id": id,
        "op": op,
        "relation": relation,
        "phrase": phrase,
        "start": None,
        "parents": [],
        "literal": None,
        "answer_type": "string",
        "select": "boat:price:crew",
        "choice": None,
        "page_after": None,
        "after": [],
        "writes": False,
        **details,
    }


PAGES = [
    step(1, "page", "pier.boat_pages", "the boats of {x}", start=0),
    step(2, "page", "pier.boat_pages", "the boats of {x}", start=0, page_after=1),
    step(3, "lookup", "boat.captain", "the captain of {x}", parents=[1, 2], choice=CHOICE),
]
NAMES = ["North Pier"]


def test_a_choice_is_worded_from_the_named_thing_alone() -> None:
    assert phrases.noun_phrase(PAGES[2], PAGES, NAMES) == (
        "the captain of the cheapest boat of North Pier"
    )


def test_each_page_and_choice_is_a_question_of_its_own() -> None:
    assert [phrases.sub_question(one, PAGES, NAMES) for one in PAGES] == [
        "What is on the first page of the boats of North Pier?",
        "What is on the page after that of step 1 of the boats of North Pier?",
        "What is the captain of the boat with the lowest price from step 1 and step 2?",
    ]


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"lowest": "", "highest": "price"}, "the boat with the highest price from step 1"),
        ({"where": "crew", "value": 3}, "the boat with crew 3 from step 1"),
        (
            {"field": "price", "where": "crew", "value": 3},
            "the price of the one with crew 3 from step 1",
        ),
        ({"field": "price"}, "the lowest price from step 1"),
        ({"lowest": ""}, "the boat from step 1"),
    ],
)
def test_what_is_picked_is_said_by_field_and_way(choice: dict[str, Any], words: str) -> None:
    rows = step(1, "rows", "pier.boat_records", "the boats of {x}", start=0)
    pick = step(2, "pick", "choice.pick", "{x}", parents=[1], choice={**CHOICE, **choice})
    assert phrases.sub_question(pick, [rows, pick], NAMES) == f"What is {words}?"


def test_one_thing_is_said_in_the_singular() -> None:
    for literal, words in ((1, "with 1 bed"), (2, "with 2 beds"), (11, "with 11 beds")):
        rooms = step(
            1, "count", "inn.rooms_by_beds", "the number of rooms with {y} beds of {x}",
            start=0, literal=literal,
        )  # fmt: skip
        assert words + " of" in phrases.noun_phrase(rooms, [rooms], NAMES)


def test_chinese_says_the_same() -> None:
    choice = {**CHOICE, "field": "room", "phrase": "{x}价格最低的客房"}
    steps = [
        step(1, "page", "hotel.room_pages", "{x}的所有客房", start=0),
        step(2, "page", "hotel.room_pages", "{x}的所有客房", start=0, page_after=1),
        step(3, "lookup", "room.guest", "{x}的住客", parents=[1, 2], choice=choice),
    ]
    assert phrases_zh.noun_phrase(steps[2], steps, ["翠湖苑"]) == "翠湖苑价格最低的客房的住客"
    assert [phrases_zh.sub_question(one, steps, ["翠湖苑"]) for one in steps] == [
        "翠湖苑的所有客房的第一页有哪些？",
        "翠湖苑的所有客房的步骤1之后的下一页有哪些？",
        "步骤1、步骤2得到的价格最低的客房的住客是什么？",
    ]


def test_longer_words_are_exchanged_whole_and_others_kept() -> None:
    every = {word: others[0] for word, others in ENGLISH.items()}
    assert reworded("the asking price of {x}", "en", every) == "the list price of {x}"
    assert reworded("the price of {x}", "en", every) == "the cost of {x}"
    assert reworded("the listings of {x}", "en", every) == "the properties of {x}"
    assert reworded("the pricelist of {x}", "en", every) == "the pricelist of {x}"
    assert reworded("the price of {x}", "en", {}) == "the price of {x}"
    assert reworded("{x}的要价", "zh", {"要价": "标价"}) == "{x}的标价"


@pytest.mark.parametrize("words", [ENGLISH, CHINESE])
def test_no_word_is_exchanged_for_one_of_another_meaning(words: Any) -> None:
    said = [other for others in words.values() for other in others]
    assert not set(said) & set(words)
    for at, word in enumerate(words):
        shadowed = [earlier for earlier in list(words)[:at] if word.startswith(earlier)]
        assert not [one for one in shadowed if words is CHINESE]


def test_a_question_keeps_to_its_words() -> None:
    drawn = {str(own_words("en", random.Random(seed)).get("price")) for seed in range(20)}
    assert drawn == {"cost", "None"}
    steps = [
        step(1, "lookup", "boat.price", "the price of {x}", start=0),
        step(2, "lookup", "boat.price", "the price of {x}", start=1),
    ]
    for seed in range(20):
        asked = phrases.main_question("list", steps, ["Heron", "Kite"], random.Random(seed), True)
        assert ("cost" in asked) is not ("price" in asked)


def test_a_look_up_is_asked_in_several_forms() -> None:
    only = [step(1, "lookup", "room.beds", "the beds of {x}", start=0)]
    asked = {
        phrases.main_question("last", only, ["Blue Room"], random.Random(seed), True)
        for seed in range(40)
    }
    assert "How many beds does Blue Room have?" in asked
    assert len(asked) > 4
    assert all("Blue Room" in question for question in asked)
    assert all("{x}" in form for forms in QUESTIONS.values() for form in forms)


def test_questions_that_are_not_paraphrased_keep_the_words_of_their_relations() -> None:
    only = [step(1, "lookup", "room.beds", "the beds of {x}", start=0)]
    named = [step(1, "lookup", "boat.price", "the price of {x}", start=0)]
    for seed in range(40):
        for steps, word in ((only, "the beds of"), (named, "the price of")):
            draw = random.Random(seed)
            assert word in phrases.main_question("last", steps, ["Blue Room"], draw, False)


def test_the_share_says_how_many_questions_are_paraphrased(qa_config: Any) -> None:
    shares: dict[float, float] = {}
    for wanted in (0.0, 0.5, 1.0):
        writer = QuestionWriter(qa_config(instances={"train": 60}, paraphrased=wanted))
        asks = [
            writer.ask(stratum, plan)
            for stratum, plan in (one for one in writer.wanted() if isinstance(one, tuple))
            if isinstance(plan, QuestionPlan)
        ]
        shares[wanted] = sum(ask.variables["paraphrased"] for ask in asks) / len(asks)
        assert all(
            ("paraphrase as people talk" in render(ask.template, ask.variables))
            is ask.variables["paraphrased"]
            for ask in asks
        )
    assert (shares[0.0], shares[1.0]) == (0.0, 1.0)
    assert 0.3 < shares[0.5] < 0.7
