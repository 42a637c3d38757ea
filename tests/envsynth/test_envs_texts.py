"""What documents and errors may state, and what an agent can know of a gold call."""

from __future__ import annotations

from typing import Any

import pytest
from env_samples import EVERY_OP, answer, asked, instance, price
from planted import tool

from astra.envsynth.leaks import NO_SECRETS, mentions, secrets_of, told_by_error
from astra.envsynth.reach import reach_problem, value_problem
from astra.envsynth.static import document_problem
from astra.records.qa import SubQuestion
from astra.records.state import Write, WriteAction
from astra.records.tool import Tool

ESTATE = instance(*EVERY_OP)
SECRETS = secrets_of(ESTATE)
DISTRICTS = ["Calm Bay", "Gold Rock", "Sage Park"]


def described(text: str, **parameter: Any) -> Tool:
    schema = {"type": "string", "description": text, **parameter}
    properties = {"listing": schema}
    base = tool()
    return base.model_copy(update={"parameters": base.parameters | {"properties": properties}})


def reason(document: Tool) -> str:
    found = document_problem(document, SECRETS, None)
    return found[0] if found else ""


@pytest.mark.parametrize(
    "text",
    [
        "A name, e.g. Nora Holt.",  # an answer of another step
        "Such as Pine Gate.",  # one of several that an answer lists
        "A listing like jade mill",  # a gold argument, whatever its case
        "Until 2024-01-22.",
        "Below 1267.",
    ],
)
def test_no_document_states_an_answer_or_argument_of_any_step(text: str) -> None:
    assert reason(described(text)) == "answer_in_document"


@pytest.mark.parametrize(
    "text",
    [
        "Name of the listing.",
        "A name of two words, like Old Bridge.",
        "At most 30 characters",
        "Prices from 8123 to 81212 in USD",
        "Of the park",
        "In crowns or another currency",  # a common word, though an argument
    ],
)
def test_other_words_and_numbers_are_no_leak(text: str) -> None:
    assert reason(described(text)) == ""


def test_an_enumeration_may_list_a_whole_column_and_nothing_less() -> None:
    assert reason(described("District.", enum=DISTRICTS)) == ""
    assert reason(described("District.", enum=[*DISTRICTS, "Far End"])) == ""
    assert reason(described("District.", enum=DISTRICTS[1:])) == "answer_in_document"
    assert reason(described("District.", examples=DISTRICTS)) == "answer_in_document"
    bare = secrets_of(ESTATE.model_copy(update={"knowledge": ()}))
    assert document_problem(described("Which.", enum=DISTRICTS), bare, None) is None
    assert document_problem(described("Which.", enum=DISTRICTS[1:]), bare, None) is not None


def test_an_enumeration_of_what_no_column_has_needs_several_values() -> None:
    days = ["Monday", "Tuesday", "Sunday"]
    weekday = asked(1, "weekday", "date.find_weekday", "", {"date": "2024-01-08"}, "",
                    answer("enum", "Monday", domain_size=7))  # fmt: skip
    secrets = secrets_of(instance(weekday))
    assert document_problem(described("Day.", enum=days), secrets, None) is None
    assert document_problem(described("Day.", enum=days[:2]), secrets, None) is not None


def test_the_result_schema_is_a_text_too() -> None:
    told = tool().model_copy(
        update={"output_schema": {"type": "string", "description": "e.g. Iron Tower"}}
    )
    assert reason(told) == "answer_in_document"


def test_arguments_of_a_call_are_secrets_though_no_operation_states_them() -> None:
    bare = instance(price(1, "Amber Cove", 812).model_copy(update={"operation": None}))
    assert "Old Bridge" in secrets_of(bare, [{"route": {"over": "Old Bridge"}}]).given


@pytest.mark.parametrize(
    ("value", "secret"),
    [("for sale", False), ("baggage fee", False), ("mid-level", False), ("ak-9052 copy", True),
     ("Iron Tower", True), ("blue heron", True)],
)  # fmt: skip
def test_words_in_lower_case_that_name_nothing_are_no_secret(value: str, secret: bool) -> None:
    whole = instance(price(1, "Amber Cove", 812), entities=("Amber Cove", "blue heron"))
    assert (value in secrets_of(whole, [{"purpose": value}]).given) is secret


def test_chinese_names_are_found_without_spaces_around_them() -> None:
    question = SubQuestion(id=1, hop_level=1, question="站长是谁?", answer=answer("string", "李明"))
    secrets = secrets_of(instance(question, entities=("李明",)))
    assert document_problem(described("站长的姓名,例如李明。"), secrets, None) is not None
    assert document_problem(described("站长的姓名。"), secrets, None) is None


def test_units_are_no_secret() -> None:
    question = EVERY_OP[12]
    euros = question.model_copy(update={"answer": answer("number", 2030, unit="EUR")})
    assert "EUR" not in secrets_of(instance(EVERY_OP[0], euros), [{"currency": "EUR"}]).given


@pytest.mark.parametrize(
    ("error", "arguments", "told"),
    [
        ("no listing named Old Bridge", {"listing": "Old Bridge"}, None),
        ("no listing named Old Bridge; try Jade Mill", {"listing": "Old Bridge"}, "Jade Mill"),
        ("no listing of Nora Holt", {"agent": "Nora Holt"}, None),
        ("known agents: Nora Holt", {"agent": "Old Bridge"}, "Nora Holt"),
        ("at most 1267", {"agent": "Old Bridge"}, 1267),
        ("at most 31 days; like 2024-12-31", {"days": 90}, None),
    ],
)
def test_errors_name_no_secret_that_the_call_did_not(
    error: str, arguments: dict[str, Any], told: object
) -> None:
    assert told_by_error(error, secrets_of(instance(*EVERY_OP, price(18, "Jade Mill", 455))),
                         arguments) == told  # fmt: skip


def test_numbers_inside_dates_and_words_are_not_stated() -> None:
    assert not mentions("from 2024-01-31", 2024)
    assert not mentions("room B812", 812)
    assert mentions("in 2024.", 2024)
    assert mentions("1,267 in all", 1267)


@pytest.mark.parametrize(
    ("document", "filters", "expected"),
    [
        (tool(rooms={"type": "integer", "default": 3}), None, "default_in_document"),
        (tool(rooms={"type": "integer"}), ("listing", "rooms"), ""),
        (tool(date={"type": "string"}), ("listing", "listed_date"), ""),
        (tool(date={"type": "string"}), ("start_date", "end_date"), "unknown_filter"),
        (tool(min_rooms={"type": "integer"}), ("listing", "rooms"), "unknown_filter"),
        (tool(term={"type": "string"}), None, ""),
        (tool(required=dict.fromkeys("abcdef", "string")), None, ""),
        (tool(required=dict.fromkeys("abcdefg", "string")), None, "bad_schema"),
    ],
)
def test_parameters_pass_a_value_or_filter_by_a_column(
    document: Tool, filters: tuple[str, ...] | None, expected: str
) -> None:
    found = document_problem(document, NO_SECRETS, filters)
    assert (found[0] if found else "") == expected


TRIP = "Fly from Houston to Los Angeles, departing March 5 and returning on the 20th of March."


@pytest.mark.parametrize(
    ("value", "told", "reachable"),
    [
        ("Houston", [TRIP], True),
        ("houston ", [TRIP], True),
        ("Dallas", [TRIP], False),
        ("2025-03-05", [TRIP], False),  # no year is told
        ("March 5", [TRIP], True),
        ("2025-03-05", [f"{TRIP} The year is 2025."], True),
        ("2025-03-20", [f"{TRIP} The year is 2025."], True),
        ("2025-03-06", [f"{TRIP} The year is 2025."], False),
        ("2025-04-05", [f"{TRIP} The year is 2025."], False),
        ("2025-03-05T10:00", ["on 5 March 2025"], True),
        ("2025-03-05", ["on 05/03/2025"], True),
        ("2025-03-05", ["", {"rows": [{"date": "2025-03-05"}]}], True),
        ("2025-03-05", ["2025年3月5日出发"], True),
        ("05/03/2025", ["departs on 2025-03-05"], True),
        ("05/03/2025", ["departs on 2025-03-06"], False),
        ("20250305", ["on March 5, 2025"], True),
        ("Holt, Nora", ["Which office does Nora Holt work at?"], True),
        ("Holt, Nina", ["Which office does Nora Holt work at?"], False),
        ("AMBER-COVE", ["Price of Amber Cove?"], True),
        ({"from": "Houston", "to": "Los Angeles"}, [TRIP], True),
        ({"from": "Houston", "to": "Miami"}, [TRIP], False),
        (["Houston", "Miami"], [TRIP], False),
        ([{"day": "2025-03-05"}], [TRIP], False),
        ("Jade Mill", ["", [{"listing": "Jade Mill", "rooms": 2}]], True),
        ('7" pipe', ['The 7" pipe'], True),
        (12, [TRIP], True),  # numbers are not judged
        ("19:00", ["Dinner at 7:00 PM"], True),
        ("19:00", ["Dinner at 7pm."], True),
        ("07:00", ["Dinner at 7 PM"], False),
        ("19:30", ["Dinner at 7:00 PM"], False),
        ("7:00 PM", ["Dinner at 19:00"], True),
    ],
)
def test_every_value_of_a_gold_call_must_be_told(
    value: object, told: list[Any], reachable: bool
) -> None:
    document = Tool(
        name="find", description="Find.", parameters={"type": "object", "properties": {"x": {}}}
    )
    found = reach_problem(document, {"x": value}, told)
    assert (found is None) == reachable
    if found:
        assert found[0] == "unreachable_argument"


@pytest.mark.parametrize(
    ("purpose", "text", "reason"),
    [
        ("Find.", "Whether it can be had.", "untold_argument"),
        ("Find an available berth.", "Which ones.", ""),
        ("Find.", "Either available or taken.", ""),
        ("Find an unavailable berth.", "Which ones.", "untold_argument"),
    ],
)
def test_a_word_may_be_told_by_the_document_alone(purpose: str, text: str, reason: str) -> None:
    schema = {"type": "string", "description": text}
    document = Tool(name="find", description=purpose,
                    parameters={"type": "object", "properties": {"status": schema}})  # fmt: skip
    found = reach_problem(document, {"status": "available"}, ["Which berth is free?"], ["status"])
    assert (found[0] if found else "") == reason


def test_of_a_value_in_a_form_of_the_schemas_own_the_call_is_to_blame() -> None:
    schema = {"type": "string", "pattern": "^..:..$"}
    document = tool("find", at=schema)
    told = ["Dinner at 7:00 PM"]
    assert reach_problem(document, {"at": "19:00"}, told, ["at"]) is None
    found = reach_problem(document, {"at": "07:00"}, told, ["at"])
    assert found is not None
    assert found[0] == "unreachable_argument"


DINNER = asked(1, "lookup", "table.host", "tables",
               {"time": "7:00 PM", "state": "upcoming", "day": "October 14, 2025", "seats": 4,
                "trip": "round trip", "host": "Nora Holt", "date": "2025-10-14"},
               "host", answer("string", "x"))  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"time": "7:00 PM"}, ""),
        ({"time": "19:00"}, ""),
        ({"time": "07:00"}, "other_value"),
        ({"state": "to come"}, "other_value"),
        ({"state": "Upcoming"}, ""),
        ({"day": "2025-10-14"}, ""),
        ({"day": "2025-10-15"}, "other_value"),
        ({"date": "14/10/2025"}, ""),
        ({"date": "2025-04-10"}, "other_value"),
        ({"seats": "4"}, ""),
        ({"seats": 5}, "other_value"),
        ({"trip": "round-trip"}, "other_value"),
        ({"host": "HOLT, NORA"}, "other_value"),
        ({"host": "Holt, Nora"}, ""),
        ({"party": 9}, ""),  # nothing says what it stands for
    ],
)
def test_an_argument_of_the_operation_has_its_value(arguments: dict[str, Any], reason: str) -> None:
    document = tool("find", dict.fromkeys(arguments, "string"))
    found = value_problem(instance(DINNER), DINNER, document, arguments)
    assert (found[0] if found else "") == reason


def test_a_stated_form_may_want_what_no_known_form_is() -> None:
    schema = {"type": "string", "pattern": "^[A-Z]{2}$"}
    assert (
        value_problem(instance(DINNER), DINNER, tool("find", host=schema), {"host": "NH"}) is None
    )
    later = asked(2, "lookup", "agent.office", "agents", {"agent": {"from": 1}}, "office",
                  answer("string", "Iron Tower"), (1,), 2)  # fmt: skip
    both = instance(EVERY_OP[0].model_copy(update={"answer": answer("string", "Ada Finch")}), later)
    document = tool("find", {"agent": "string"})
    assert value_problem(both, later, document, {"agent": "Ada Finch"}) is None
    assert value_problem(both, later, document, {"agent": "Ada Fink"}) is not None
    free = later.model_copy(update={"operation": None})
    assert value_problem(both, free, document, {"agent": "Ada Fink"}) is None


def test_the_very_cell_that_a_call_writes_is_no_secret() -> None:
    cell = Write(action=WriteAction.UPDATE, table="listings", where={"listing": "Amber Cove"},
                 values={"agent": "Nora Holt"})  # fmt: skip
    moved = EVERY_OP[1].model_copy(update={"writes": (cell,)})
    other = price(2, "Jade Mill", 455)
    assert "Nora Holt" in secrets_of(instance(EVERY_OP[1], other)).answers
    assert "Nora Holt" not in secrets_of(instance(moved, other)).answers
    gone = cell.model_copy(update={"action": WriteAction.DELETE, "values": {}})
    removed = moved.model_copy(update={"writes": (gone,)})
    assert "Nora Holt" in secrets_of(instance(removed, other)).answers


def test_values_of_an_enumeration_are_in_the_document_also_nested() -> None:
    inner = {"type": "object", "properties": {"class": {"enum": ["Economy", "Business"]}}}
    document = Tool(
        name="find",
        description="Find.",
        parameters={
            "type": "object",
            "properties": {"trip": inner, "stops": {"type": "array", "items": {"enum": ["Rome"]}}},
        },
    )
    assert reach_problem(document, {"trip": {"class": "Economy"}, "stops": ["Rome"]}, []) is None
    assert reach_problem(document, {"trip": {"seat": "Economy"}}, []) is not None


@pytest.mark.parametrize(
    "text", ["Known listings:\nJade Mill", "Known listings:\n\tJade Mill", "At most:\n1267"]
)
def test_a_secret_at_the_start_of_a_line_is_stated(text: str) -> None:
    assert reason(described(text)) == "answer_in_document"
    error = str(KeyError(text))  # which quotes its message
    assert told_by_error(error, SECRETS, {"listing": "Old Bridge"}) is not None


def test_names_of_fields_are_texts_and_words_of_two_places_are_no_name() -> None:
    assert reason(described("Jade", examples=["Mill"])) == ""
    result = {"type": "object", "properties": {"Jade Mill": {"type": "string"}}}
    assert reason(tool().model_copy(update={"output_schema": result})) == "answer_in_document"


@pytest.mark.parametrize("given", ["of\nJade Mill", "of\tJade Mill", "of\\nJade Mill"])
def test_an_error_may_quote_the_lines_that_its_call_gave(given: str) -> None:
    secrets = secrets_of(instance(*EVERY_OP, price(18, "Jade Mill", 455)))
    for error in (f"no listing {given}", f"no listing {given!r}"):
        assert told_by_error(error, secrets, {"listing": given}) is None
        assert told_by_error(error, secrets, {"listing": "Old Bridge"}) == "Jade Mill"
