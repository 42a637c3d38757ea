"""The marks of the rules: values that nobody stated, repeats, languages, addresses."""

from __future__ import annotations

from typing import Any

import pytest
from test_conversations import talk
from test_scoring import (
    BAD,
    COVE,
    FAR,
    GOOD,
    LATE,
    LOST,
    OK,
    PRICE,
    QUESTION,
    TOOLS,
    Call,
    tool,
    trajectory,
)

from astra.records.message import CallStatus, MessageRole
from astra.records.tool import Tool
from astra.records.trajectory import Trajectory
from astra.scoring import rules
from astra.scoring.suspects import suspects
from astra.scoring.view import view_of


def offering(one: Trajectory, *tools: Tool, told: str = "system") -> Trajectory:
    messages = [
        m.model_copy(update={"content": told}) if m.role == MessageRole.SYSTEM else m
        for m in one.messages
    ]
    changes = {"id": "", "tools": [*TOOLS, *tools], "messages": messages}
    return Trajectory.model_validate(one.model_dump() | changes)


def marked(one: Trajectory) -> dict[str, tuple[Any, ...]]:
    return {suspect.argument: suspect.unstated for suspect in suspects(view_of(one))}


def asked(question: str, arguments: dict[str, Any], schema: Any = None) -> dict[str, Any]:
    """The marks of one call with these arguments, to a tool with this schema."""
    parameters = schema or {"type": "object", "properties": {name: {} for name in arguments}}
    seek = Tool(name="seek", description="", parameters=parameters)
    one = trajectory(question, [("seek", arguments, OK, "[]")], answer="<answer>x</answer>")
    return marked(offering(one, seek))


@pytest.mark.parametrize(
    ("question", "arguments", "found"),
    [
        # What people say and what tools take: marked, for the judge to say where it comes from.
        ("Weather in Paris tomorrow?", {"lat": 48.8566, "lon": 2.3522}, {"lat", "lon"}),
        ("250 dollars in euros?", {"amount": 250, "from": "USD"}, {"from"}),
        ("When is the next flight from New York?", {"zone": "America/New_York"}, {"zone"}),
        ("Homes in Oslo?", {"city": "Oslo", "limit": 25}, {"limit"}),
        ("What is on tomorrow?", {"day": "2026-03-11"}, {"day"}),
        # What nobody gave.
        ("Homes in Oslo?", {"city": "Bergen"}, {"city"}),
        ("Cancel my order.", {"order": "A-1044"}, {"order"}),
        ("Cancel my order.", {"order": 1044}, {"order"}),
        ("Homes at 39.7392?", {"rooms": 3}, {"rooms"}),
        ("A home built in 2021?", {"page": 1}, {"page"}),
        # What was given, in the same or another form.
        ("The weather of the next five days", {"days": 5}, set()),
        ("Homes under 1 million", {"most": 1000000}, set()),
        ("Homes on May 3, 2024?", {"day": "2024-05-03"}, set()),
        ("recipes with chicken", {"query": "chicken recipe"}, set()),
        ("Homes in Oslo?", {"city": "Oslo", "all": True, "page": None, "tag": ""}, set()),
        ("How warm is it in Oslo?", {"unit": "celsius", "system": "metric"}, set()),
        ("北京的房子", {"city": "北京"}, set()),
        ("北京的房子", {"city": "上海"}, {"city"}),
        ("Homes in Oslo and Rome", {"cities": ["Oslo", "Rome"]}, set()),
    ],
)
def test_which_arguments_are_marked(
    question: str, arguments: dict[str, Any], found: set[str]
) -> None:
    assert set(asked(question, arguments)) == found


def test_only_the_parts_that_nobody_stated_are_shown() -> None:
    arguments = {"filter": {"cities": ["Oslo", "Rome", "Bonn"], "open": True, "most": 9}}
    assert asked("Homes in Oslo?", arguments) == {"filter": ("Rome", "Bonn", 9)}


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "limit": {"type": "integer", "default": 10},
        "page": {"anyOf": [{"type": "integer", "examples": [7]}, {"type": "null"}]},
        "fields": {"type": "array", "items": {"enum": ["title", "abstract"]}},
        "sort": {"type": "object", "properties": {"by": {"$ref": "#/$defs/column"}}},
        "box": {"type": "array", "prefixItems": [{"const": 90}, {"const": 180}]},
        "map": {"type": "object", "additionalProperties": {"enum": ["asc"]}},
        "range": {"default": {"from": 1, "to": 9}},
        "on": {"enum": [1]},
    },
    "$defs": {"column": {"oneOf": [{"const": "price"}, {"$ref": "#/$defs/column"}]}},
}


@pytest.mark.parametrize(
    ("name", "value", "unstated"),
    [
        ("limit", 10, ()),
        ("limit", 11, (11,)),
        ("page", 7, ()),
        ("page", 8, (8,)),
        ("fields", ["title", "abstract"], ()),
        ("fields", ["title", "isbn"], ("isbn",)),
        ("sort", {"by": "price"}, ()),
        ("sort", {"by": "rooms"}, ("rooms",)),
        ("sort", {"under": "price"}, ("price",)),
        ("box", [90, 180], ()),
        ("map", {"price": "asc"}, ()),
        ("map", {"price": "desc"}, ("desc",)),
        ("range", {"from": 1, "to": 9}, ()),
        ("range", {"from": 1, "to": 8}, (1, 8)),
        ("on", 1, ()),
        ("other", "thing", ("thing",)),
    ],
)
def test_a_schema_states_its_literals_at_any_depth(
    name: str, value: Any, unstated: tuple[Any, ...]
) -> None:
    found = asked("Show them.", {name: value}, SCHEMA)
    assert found == ({name: unstated} if unstated else {})


@pytest.mark.parametrize("parameters", [{}, {"properties": {"x": True}}, {"$ref": "#/no/where"}])
def test_an_odd_schema_states_nothing(parameters: dict[str, Any]) -> None:
    assert asked("Show them.", {"x": "odd"}, parameters) == {"x": ("odd",)}


@pytest.mark.parametrize(
    "text", ["{not json", '{"x": NaN}', '{"x": 1e999}', "[1]", '{"x": 1, "x": 2}']
)
def test_arguments_that_are_no_json_object_have_no_values(text: str) -> None:
    one = trajectory(QUESTION, [PRICE], [PRICE], answer=GOOD)
    document = one.model_dump()
    for message in document["messages"][2:5:2]:
        message["tool_calls"][0]["arguments"] = text
    odd = Trajectory.model_validate(document | {"id": ""})
    assert marked(odd) == {}
    assert [repeat["call"] for repeat in rules.repeats(view_of(odd))] == ["2.1"]


def test_a_value_is_looked_into_to_a_depth() -> None:
    deep: Any = "Bergen"
    for _ in range(200):
        deep = [deep]
    assert asked("Homes in Oslo?", {"x": [["Bergen"]], "y": deep}) == {"x": ("Bergen",)}


def test_what_the_agent_was_told_is_stated() -> None:
    call: Call = ("seek", {"day": "2026-03-10"}, OK, "[]")
    one = trajectory("What is on today?", [call], answer="<answer>x</answer>")
    seek = tool("seek", day={"type": "string"})
    assert marked(offering(one, seek)) == {"day": ("2026-03-10",)}
    assert marked(offering(one, seek, told="It is 2026-03-10, 14:05.")) == {}


def test_a_value_from_a_result_is_known_only_afterwards() -> None:
    agent: Call = ("find_agent", COVE, OK, "Mona Kemp")
    office: Call = ("get_office", {"agent": "Mona Kemp"}, OK, "Pine Dock")
    answer = "It is <answer>Pine Dock</answer>"
    assert marked(trajectory(FAR, [agent], [office], answer=answer)) == {}
    (early,) = suspects(view_of(trajectory(FAR, [agent, office], answer=answer)))
    assert (early.place, early.argument) == ((0, 1), "agent")


def test_numbers_of_a_compact_result_stand_apart() -> None:
    ids: Call = ("list_homes", {"city": "Oslo"}, OK, '{"ids":[100,200,300]}')
    use: Call = ("set_asking_price", {"listing": "Oslo", "price": 200}, OK, "updated")
    assert marked(trajectory("Homes in Oslo?", [ids], [use], answer=GOOD)) == {}
    run_together: Call = (*use[:1], {"listing": "Oslo", "price": 100200300}, *use[2:])
    wrong = trajectory("Homes in Oslo?", [ids], [run_together], answer=GOOD)
    assert marked(wrong) == {"price": (100200300,)}


def test_a_value_may_come_from_any_message_of_the_user_but_not_before_it() -> None:
    asks = "Please tell me the listing. <answer>missing value</answer>"
    first = ("What is the asking price?", [], asks)
    assert marked(talk(first, ("It is Amber Cove.", [[PRICE]], GOOD))) == {}
    early = talk(("What is the asking price?", [[PRICE]], GOOD), ("Of Amber Cove.", [], "Yes."))
    assert marked(early) == {"listing": ("Amber Cove",)}


WRITE: Call = ("set_asking_price", {**COVE, "price": 5}, OK, "updated")
FAILED: Call = (*WRITE[:2], LOST, "error: timed out")
WRONG: Call = ("get_asking_price", COVE, BAD, "error: no listing named Amber Cove")
PENDING: Call = ("get_job_status", {"id": 4}, OK, "pending")


@pytest.mark.parametrize(
    ("turns", "found"),
    [
        ([[PRICE], [PRICE]], ["2.1"]),
        ([[PRICE, PRICE]], ["1.2"]),
        ([[WRONG], [WRONG]], ["2.1"]),
        ([[WRITE], [WRITE]], ["2.1"]),
        ([[LATE], [LATE], [PRICE]], []),
        ([[PRICE], [WRITE], [PRICE]], []),
        ([[PRICE], [FAILED], [PRICE]], []),
        ([[FAILED], [FAILED], [WRITE]], []),
        ([[PRICE], [(*WRITE[:2], BAD, "error: locked")], [PRICE]], ["3.1"]),
        ([[(*WRITE[:2], BAD, "error: locked")], [WRITE]], []),
        ([[PRICE], [("get_asking_price", COVE, OK, "420000")]], []),
        ([[PENDING], [PENDING], [(*PENDING[:3], "done")]], []),
    ],
)
def test_an_exact_repeat_is_marked_unless_something_may_have_changed(
    turns: list[list[Call]], found: list[str]
) -> None:
    one = trajectory(QUESTION, *turns, answer=GOOD)
    assert [repeat["call"] for repeat in rules.repeats(view_of(one))] == found


@pytest.mark.parametrize(
    ("name", "effect", "found"),
    [
        ("notion_update_page", "", ["3.1"]),
        ("notion_update_page", "writes", []),
        ("update_page", "", []),
        ("update_page", "reads", ["3.1"]),
    ],
)
def test_what_writes_is_known_by_the_tools_effect_else_by_its_verb(
    name: str, effect: str, found: list[str]
) -> None:
    middle: Call = (name, COVE, OK, "done")
    one = trajectory(QUESTION, [PRICE], [middle], [PRICE], answer=GOOD)
    named = tool(name, listing={}).model_copy(update={"effect": effect})
    assert [r["call"] for r in rules.repeats(view_of(offering(one, named)))] == found


LINKED: Call = ("get_office", {"agent": "Mona Kemp"}, OK, '{"site":"https:\\/\\/a.example\\/x"}')


@pytest.mark.parametrize(
    ("message", "foreign"),
    [
        ("See https://a.example/x.", []),
        ("See http://www.A.example/x/", []),
        ("See [the page](https://a.example/x).", []),
        ("It is at https://docs.b.example/queue.", []),
        ("See https://a.example/y", ["https://a.example/y"]),
        ("See https://a.example/x/2", ["https://a.example/x/2"]),
        ("See www.c.example", ["www.c.example"]),
        ("Ask at the desk, e.g. tomorrow.", []),
    ],
)
def test_an_address_must_have_been_given(message: str, foreign: list[str]) -> None:
    question = "Office of agent Mona Kemp, as on docs.b.example/queue?"
    one = trajectory(question, [LINKED], answer=f"{message} <answer>see</answer>")
    assert rules.foreign_urls(view_of(one)) == foreign


def test_a_tools_document_gives_its_addresses() -> None:
    one = trajectory(QUESTION, [PRICE], answer=f"{GOOD} https://a.example/terms")
    named = tool("x", y={}).model_copy(update={"description": "See https://a.example/terms."})
    assert rules.foreign_urls(view_of(one)) == ["https://a.example/terms"]
    assert rules.foreign_urls(view_of(offering(one, named))) == []


LONG = "Quels sont les prix des maisons dans la ville et qui est le vendeur de cette maison ?"


@pytest.mark.parametrize(
    ("question", "answer", "marks"),
    [
        (QUESTION, GOOD, []),
        (QUESTION, "要价是这个数字，请查收。<answer>410000</answer>", [("zh", "en")]),
        (QUESTION, "<answer>ZH-204</answer>", []),
        (QUESTION, "OK. <answer>410000</answer>", []),
        # A few words of Latin script decide nothing.
        (QUESTION, "Los Angeles: <answer>410000</answer>", []),
        (LONG, "Los precios de las casas en la ciudad son los de la lista", [("es", "fr")]),
        ("请告诉我Amber Cove的要价是多少。", "查询的结果是 <answer>410000</answer>", []),
        ("请告诉我Amber Cove的要价是多少。", GOOD, [("en", "zh")]),
        (
            "请告诉我Amber Cove的要价是多少。",
            "<answer>the price of it is 5</answer>",
            [("en", "zh")],
        ),
    ],
)
def test_which_messages_seem_to_be_in_another_language(
    question: str, answer: str, marks: list[tuple[str, str]]
) -> None:
    found = rules.foreign_messages(view_of(trajectory(question, [PRICE], answer=answer)))
    assert [(one["language"], one["wanted"]) for one in found] == marks


def test_a_user_may_change_the_language() -> None:
    chinese = (
        "请用中文告诉我这个房子的要价。",
        [[PRICE]],
        "要价是这个数字。<answer>410000</answer>",
    )
    assert rules.foreign_messages(view_of(talk((QUESTION, [[PRICE]], GOOD), chinese))) == []
    english = ("请用中文告诉我这个房子的要价。", [[PRICE]], GOOD)
    (found,) = rules.foreign_messages(view_of(talk((QUESTION, [[PRICE]], GOOD), english)))
    assert found == {"turn": 4, "language": "en", "wanted": "zh"}


def test_outages_are_left_out_where_wanted_and_a_recovery_is_known() -> None:
    refused: Call = ("find_agent", COVE, CallStatus.REFUSED, "not executed")
    one = view_of(trajectory(QUESTION, [LATE, refused], [PRICE], answer=GOOD))
    assert rules.tool_status(one).model_dump()["value"] == 1 / 3
    assert rules.tool_status(one, rules.OUTAGES).model_dump()["value"] == 1 / 2
    assert rules.recovered(one)
    without: list[list[list[Call]]] = [[[PRICE]], [[PRICE], [LATE]], [[refused], [PRICE]]]
    for turns in without:
        assert not rules.recovered(view_of(trajectory(QUESTION, *turns, answer=GOOD)))
