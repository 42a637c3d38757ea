"""Whether a document fits its question: pages, cells, units, what a change needs, true results."""

from __future__ import annotations

from typing import Any

import pytest
from env_samples import ENVS, EVERY_OP, answer, asked, instance, price
from planted import tool
from write_samples import CANCEL, REMOVE, RESERVE, house

from astra.envsynth.asks import complexity_ask
from astra.envsynth.candidates import candidate_of
from astra.envsynth.faults import ToolPart, fault_of
from astra.envsynth.fit import operation_problem, result_problem
from astra.envsynth.verify import static_problem
from astra.prompting import render
from astra.records.qa import QAInstance, SubQuestion
from astra.records.tool import Tool

ESTATE = instance(*EVERY_OP)


def fault(document: Tool, question: SubQuestion, of: QAInstance = ESTATE) -> str:
    found = operation_problem(document, of, question)
    assert found is None or fault_of(found).part is ToolPart.DOCUMENT
    return found[0] if found else ""


PAGE = asked(1, "page", "district.listings", "listings", {"district": "Sage Park", "page": 1},
             "listing", answer("record", {}))  # fmt: skip


@pytest.mark.parametrize(
    ("description", "schema", "reason"),
    [
        ("Browse listings.", {"type": "integer", "minimum": 1}, ""),
        ("Browse listings.", {"type": "integer", "minimum": 0}, "page_base"),
        ("Browse listings.", {"type": "integer", "description": "Zero-based page."}, "page_base"),
        ("Browse listings, pages counted from zero.", {"type": "integer"}, "page_base"),
        ("Browse listings. Numbers of pages start at 0.", {"type": "integer"}, "page_base"),
        ("Browse listings.", {"type": "integer", "description": "Pages count from 1."}, ""),
        ("Browse listings with 0 or more rooms.", {"type": "integer"}, ""),
    ],
)
def test_pages_are_counted_from_one(description: str, schema: dict[str, Any], reason: str) -> None:
    named = tool("browse", {"district": "string"}).model_copy(update={"description": description})
    properties = {"district": {"type": "string"}, "portion": schema}
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    document = named.model_copy(update={"parameters": parameters, "output_schema": None})
    for question, expected in ((PAGE, reason), (EVERY_OP[0], "")):
        assert fault(document, question) == expected


@pytest.mark.parametrize(
    ("schemas", "reason"),
    [
        ({"listing": {"type": "string", "maxLength": 10}}, ""),
        ({"listing": {"type": "string", "maxLength": 9}}, "cell_violates_schema"),
        ({"listed_date": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\d$"}}, ""),
        ({"listed_date": {"type": "string", "pattern": r"^\d\d/\d\d/\d{4}$"}}, ""),
        ({"listed_date": {"type": "string", "pattern": r"^\d\d/\d\d/\d\d$"}},
         "cell_violates_schema"),
        ({"rooms": {"type": "integer"}}, ""),
        ({"rooms": {"type": "string"}}, "cell_violates_schema"),
        ({"agent": {"type": "integer"}}, "cell_violates_schema"),
        ({"rooms": {"type": "integer", "maximum": 5}}, ""),
        ({"rooms": {"type": "integer", "maximum": 4}}, "cell_violates_schema"),
        ({"price": {"type": "integer", "maximum": 800}}, "cell_violates_schema"),
        ({"budget": {"type": "integer", "maximum": 3}}, ""),  # no column
        ({"rooms": {"$ref": "#/$defs/few"}}, "cell_violates_schema"),
        ({"rooms": {"$ref": "#/$defs/many"}}, ""),
    ],
)  # fmt: skip
def test_every_cell_of_a_column_fits_its_parameter(schemas: dict[str, Any], reason: str) -> None:
    document = tool(**schemas)
    few, many = ({"type": "integer", "maximum": most} for most in (4, 9))
    parameters = document.parameters | {"$defs": {"few": few, "many": many}}
    document = document.model_copy(update={"parameters": parameters})
    assert fault(document, EVERY_OP[0]) == reason


def changing(question: SubQuestion, *optional: str) -> Tool:
    """The tool of a step that writes, with some of its parameters optional."""
    assert question.operation is not None
    names = list(question.operation.arguments)
    parameters = {
        "type": "object",
        "properties": {name: {} for name in [*names, "note"]},
        "required": [name for name in names if name not in optional],
    }
    return tool().model_copy(update={"parameters": parameters, "output_schema": None})


@pytest.mark.parametrize("question", [RESERVE, CANCEL, REMOVE])
def test_a_change_cannot_be_asked_for_without_what_says_which(question: SubQuestion) -> None:
    whole = house(question)
    assert question.operation is not None
    assert fault(changing(question), question, whole) == ""
    for name in question.operation.arguments:
        assert fault(changing(question, name), question, whole) == "optional_argument"


def test_a_reading_may_leave_its_arguments_out() -> None:
    count = EVERY_OP[5]
    assert fault(changing(count, "rooms"), count) == ""


def weighing(text: str, unit: str = "", question: str = "What is the weight of step 1?") -> str:
    """What is found of a tool, described so, for a step whose own answer has the unit."""
    step = price(1, "Amber Cove", 812).model_copy(
        update={"question": question, "answer": answer("number", 812, unit=unit)}
    )
    whole = instance(step).model_copy(update={"main_question": question})
    document = tool().model_copy(update={"description": text})
    return fault(document, step, whole)


@pytest.mark.parametrize(
    ("text", "unit", "question", "reason"),
    [
        ("Tell the weight of a parcel in kilograms.", "lb", "How heavy is it?", "other_unit"),
        ("Tell the weight of a parcel (kg).", "lb", "How heavy is it?", "other_unit"),
        ("Tell the weight of a parcel (in kilograms).", "lb", "How heavy is it?", "other_unit"),
        ("Tell the weight of a parcel in pounds.", "lb", "How heavy is it?", ""),
        ("Tell the rent in euros.", "USD per month", "What is the rent?", "other_unit"),
        ("Tell the rent of a listing in US dollars.", "USD per month", "What is the rent?", ""),
        ("Tell the rent of a listing in dollars.", "CAD", "What is the rent?", ""),
        ("Tell the fee for a parcel by its weight in kilograms.", "USD",
         "What does a parcel of 5 lb cost?", "other_unit"),
        ("Tell the fee for a parcel by its weight in pounds.", "USD", "What does it cost?", ""),
        ("Tell the length of a tour in hours.", "min", "How long is the tour?", "other_unit"),
        ("Tell the length of a tour in minutes.", "min", "How long is the tour?", ""),
        ("Tell the trips that start in a month, in real time.", "days", "How long is it?", ""),
        ("Tell the length of a trail in miles.", "km", "How many miles, or km, is it?", ""),
        ("Tell the price per kilogram.", "USD per lb", "What does it cost?", "other_unit"),
        ("告知包裹的重量，以公斤为单位。", "磅", "包裹有多重？", "other_unit"),
        ("告知包裹的重量，单位为磅。", "磅", "包裹有多重？", ""),
        ("Tell the weight of a parcel in kilograms.", "", "How heavy is it?", ""),
    ],
)  # fmt: skip
def test_a_document_measures_in_the_units_that_are_asked_for(
    text: str, unit: str, question: str, reason: str
) -> None:
    assert weighing(text, unit, question) == reason


def test_a_unit_that_an_earlier_answer_has_is_known_and_a_conversion_has_two() -> None:
    weight = price(1, "Amber Cove", 812).model_copy(
        update={"answer": answer("number", 812, unit="lb")}
    )
    rate = asked(2, "divide", "price.per_weight", "", {"amount": 20, "by": {"from": 1}}, "",
                 answer("number", 0.02), (1,), 2)  # fmt: skip
    both = instance(weight, rate)
    document = tool(required={"amount": "number", "by": "number"})
    for unit, reason in (("kilograms", "other_unit"), ("pounds", "")):
        told = document.model_copy(update={"description": f"Divide by a weight in {unit}."})
        assert fault(told, rate, both) == reason
    assert rate.operation is not None
    converting = rate.operation.model_copy(update={"op": "convert"})
    step = rate.model_copy(update={"operation": converting})
    told = document.model_copy(update={"description": "Give a weight in kilograms."})
    assert fault(told, step, instance(weight, step)) == ""


def giving(**schema: Any) -> Tool:
    return tool().model_copy(update={"output_schema": schema})


@pytest.mark.parametrize(
    ("at", "schema", "reason"),
    [
        (0, {"type": "number"}, ""),
        (0, {"type": "integer", "minimum": 0}, ""),
        (0, {"type": "integer", "minimum": 300}, "answer_violates_schema"),  # another row has 290
        (0, {"type": "integer", "maximum": 800}, "answer_violates_schema"),
        (1, {"type": "string", "maxLength": 9}, ""),
        (1, {"type": "string", "maxLength": 8}, "answer_violates_schema"),
        (3, {"type": "array", "items": {"type": "string", "maxLength": 10}}, ""),
        (3, {"type": "array", "items": {"type": "string", "maxLength": 9}},
         "answer_violates_schema"),
        (13, {"type": "string", "format": "date"}, ""),
        (13, {"type": "string", "format": "date-time"}, "answer_violates_schema"),
        (4, {"type": "integer", "maximum": 3}, ""),  # a count: no cell
    ],
)  # fmt: skip
def test_true_results_satisfy_the_output_schema(
    at: int, schema: dict[str, Any], reason: str
) -> None:
    assert fault(giving(**schema), EVERY_OP[at]) == reason


def test_a_day_within_a_record_is_no_moment() -> None:
    inner = {"day": {"type": "string", "format": "date-time"}}
    document = giving(type="object", properties=inner)
    assert result_problem(document, {"day": "2024-01-08"}) is not None
    assert result_problem(document, {"day": "2024-01-08T10:00:00Z"}) is None


def test_the_result_of_another_call_satisfies_the_output_schema() -> None:
    step = asked(1, "subtract", "price.difference", "", {"amount": 812, "minus": 455}, "",
                 answer("number", 357))  # fmt: skip
    code = "def get_price(amount, minus):\n    return round(amount - minus, 2)\n"
    for schema, reason in (
        ({"type": "number"}, None),
        ({"type": "number", "minimum": 0}, "answer_violates_schema"),
    ):
        document = tool(required={"amount": "number", "minus": "number"})
        document = document.model_copy(update={"output_schema": schema})
        assert fault(document, step) == ""
        candidate = candidate_of(instance(step), document, code, {1: {"amount": 812, "minus": 455}})
        found = static_problem(candidate, ENVS.sandbox)
        assert (found and found[0]) == reason


def test_the_review_sees_the_type_of_every_column_that_a_filter_may_be_on() -> None:
    ask = complexity_ask(ESTATE, EVERY_OP[5], tool(), None, 0)
    assert ask.variables["columns"] == {
        "listing": "string", "agent": "string", "asking_price": "integer", "listed_date": "string",
    }  # fmt: skip
    fees = complexity_ask(ESTATE, EVERY_OP[7], tool(), None, 0).variables["columns"]
    assert fees["fee"] == "number"
    assert '{"listing": "string"' in render(ask.template, ask.shown)
    free = EVERY_OP[5].model_copy(update={"operation": None})
    assert complexity_ask(ESTATE, free, tool(), None, 0).variables["columns"] is None
