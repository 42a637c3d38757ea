"""Which tools could be one: by construction, perhaps, or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from env_samples import EVERY_OP, answer, asked, instance, price
from merge_samples import environment, free, price_code, price_tool

from astra.envsynth.grouping import Member, calls_of, can_merge, classes_of, doubtful
from astra.records.environment import Environment
from astra.records.qa import SubQuestion
from astra.records.tool import Tool


def member(question: SubQuestion, arguments: dict[str, Any] | None = None, **types: str) -> Member:
    """A sub-question with a tool whose parameters are those of its operation, or ``types``."""
    operation = question.operation
    given = arguments or (dict(operation.arguments) if operation else {"name": "x"})
    kinds = types or dict.fromkeys(given, "string")
    schema = {
        "type": "object", "required": list(kinds),
        "properties": {name: {"type": kind} for name, kind in kinds.items()},
    }  # fmt: skip
    tool = Tool(name="tool", description="A tool.", parameters=schema)
    made = Environment(
        qa_id="q", sub_question_id=question.id, tool=tool, code="", arguments=given,
        answer=question.answer, checks={},
    )  # fmt: skip
    return question, made


def bare(number: int, value: Any, kind: str = "number") -> SubQuestion:
    return price(number, "Amber Cove", 1).model_copy(
        update={"operation": None, "answer": answer(kind, value)}
    )


def ids(classes: list[list[Member]]) -> list[list[int]]:
    return [[question.id for question, _ in members] for members in classes]


def test_steps_of_one_operation_are_a_class() -> None:
    first, other = price(1, "Amber Cove", 812), price(3, "Jade Mill", 455)
    agent = EVERY_OP[1]  # another column of the same table
    members = [member(first), member(agent), member(other)]
    assert ids(classes_of(members)) == [[1, 3], [2]]
    assert doubtful(classes_of(members)) == []


def test_an_operation_whose_tools_take_other_arguments_is_no_class() -> None:
    one, two = EVERY_OP[4], EVERY_OP[5]  # how many listings, and how many with so many rooms
    members = [member(one), member(two, district="string", rooms="integer")]
    assert ids(classes_of(members)) == [[5], [6]]
    assert not can_merge(*members)


def test_steps_without_operations_are_a_matter_of_judgement_if_they_look_alike() -> None:
    members = [member(bare(1, 812)), member(bare(2, 455.5)), member(bare(3, "Nora", "string"))]
    assert ids(classes_of(members)) == [[1], [2], [3]]
    assert ids(doubtful(classes_of(members))) == [[1], [2]]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (member(bare(1, 812)), member(bare(2, "2024-01-08", "date"))),
        (member(bare(1, True, "boolean")), member(bare(2, 1))),
        (member(bare(1, 812)), member(bare(2, 455), a="string", b="string")),
        (member(bare(1, 812), a="string"), member(bare(2, 455), a="integer")),
        (member(bare(1, [1], "list")), member(bare(2, ["a"], "list"))),
        (member(bare(1, {"a": 1}, "record")), member(bare(2, {"b": 1}, "record"))),
    ],
)
def test_other_results_or_parameters_never_merge(one: Member, other: Member) -> None:
    assert not can_merge(one, other)


def test_names_of_parameters_do_not_matter_nor_do_optional_ones() -> None:
    one, other = member(bare(1, 812), city="string"), member(bare(2, 455), town="string")
    assert can_merge(one, other)
    wider = other[1].tool.parameters
    wider = {**wider, "properties": {**wider["properties"], "year": {"type": "integer"}}}
    tool = other[1].tool.model_copy(update={"parameters": wider})
    assert can_merge(one, (other[0], other[1].model_copy(update={"tool": tool})))


def test_operations_that_differ_never_merge_but_two_names_for_one_may() -> None:
    cheapest = asked(1, "min", "district.lowest_price", "listings", {"district": "Gold Rock"},
                     "asking_price", answer("number", 290))  # fmt: skip
    dearest = asked(2, "max", "district.highest_price", "listings", {"district": "Gold Rock"},
                    "asking_price", answer("number", 455))  # fmt: skip
    assert not can_merge(member(cheapest), member(dearest))
    assert cheapest.operation is not None
    renamed = cheapest.operation.model_copy(update={"relation": "district.minimum"})
    again = cheapest.model_copy(update={"id": 3, "operation": renamed})
    members = [member(cheapest), member(again)]
    assert can_merge(*members)
    assert ids(classes_of(members)) == [[1], [3]]


def test_a_stated_operation_may_go_with_an_unstated_one() -> None:
    assert can_merge(member(price(1, "Amber Cove", 812)), member(bare(2, 455), listing="string"))


def test_calls_are_derived_through_the_operation_whatever_parameters_are_called() -> None:
    whole = instance(price(1, "Amber Cove", 812), price(2, "Jade Mill", 455))
    base = environment(whole, 1, "Amber Cove", "", parameter="name_of_listing")
    other = environment(whole, 2, "Jade Mill", "", parameter="house")
    members = list(zip(whole.sub_questions, (base, other), strict=True))
    calls = calls_of(whole, members[0], members)
    assert calls == {
        1: {"name_of_listing": "Amber Cove"}, 2: {"name_of_listing": "Jade Mill"},
    }  # fmt: skip


def test_calls_take_the_form_that_the_tool_wants() -> None:
    whole = instance(price(1, "Amber Cove", 812), price(2, "Jade Mill", 455))
    base = environment(whole, 1, "AMBER-COVE", "", parameter="code")
    other = environment(whole, 2, "Jade Mill", "")
    members = list(zip(whole.sub_questions, (base, other), strict=True))
    calls = calls_of(whole, members[0], members)
    assert calls == {1: {"code": "AMBER-COVE"}, 2: {"code": "JADE-MILL"}}


def test_calls_that_nothing_relates_are_not_made_up() -> None:
    whole = free("Amber Cove", "Jade Mill")
    code = price_code("Amber Cove")
    same = [environment(whole, 1, "Amber Cove", code), environment(whole, 2, "Jade Mill", code)]
    members = list(zip(whole.sub_questions, same, strict=True))
    assert calls_of(whole, members[0], members) == {
        1: {"listing": "Amber Cove"}, 2: {"listing": "Jade Mill"},
    }  # fmt: skip
    tool = price_tool(parameter="house")
    renamed = same[1].model_copy(update={"tool": tool, "arguments": {"house": "Jade Mill"}})
    members[1] = (whole.sub_questions[1], renamed)
    assert calls_of(whole, members[0], members) is None
