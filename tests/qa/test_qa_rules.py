from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from astra.qa.offline.judge import sequential
from astra.qa.rules import check, same
from astra.records.qa import Answer, AnswerType

NAMES = {"Ada Finch", "Ben Cole", "Blue Heron", "Grey Gull", "Red Kite"}
HOPS = (1, 2)


def verdict(build: Any, document: dict[str, Any]) -> str | None:
    problem = check(build(document), HOPS, NAMES)
    return problem[0] if problem else None


@pytest.mark.parametrize("which", ["chain", "comparison"])
def test_sound_instances_pass(which: str, documents: Any, build: Any) -> None:
    assert check(build(documents[which]()), HOPS, NAMES) is None


def _no_steps(d: dict[str, Any]) -> None:
    d["sub_questions"] = []


def _same_id(d: dict[str, Any]) -> None:
    d["sub_questions"][1]["id"] = 1


def _unresolved(d: dict[str, Any]) -> None:
    d["sub_questions"][1]["dependencies"] = (1, 9)


def _circle(d: dict[str, Any]) -> None:
    d["sub_questions"][0]["dependencies"] = (2,)


def _level(d: dict[str, Any]) -> None:
    d["sub_questions"][1]["hop_level"] = 3


def _label(d: dict[str, Any]) -> None:
    d["scenario"] = "parallel_multi_hop"


def _empty(d: dict[str, Any]) -> None:
    d["sub_questions"][0]["answer"]["value"] = " "


def _type(d: dict[str, Any]) -> None:
    d["sub_questions"][1]["answer"]["value"] = "52"


def _boolean(d: dict[str, Any]) -> None:
    d["final_answer"]["value"] = True


def _unused(d: dict[str, Any]) -> None:
    d["sub_questions"][1]["operation"]["arguments"] = {"captain": "Ada Finch"}


def _undeclared(d: dict[str, Any]) -> None:
    d["sub_questions"][1].update(dependencies=(), hop_level=1)
    d["scenario"] = "parallel_single_hop"


def _spoken_of(d: dict[str, Any]) -> None:
    d["sub_questions"][0].update(question="What is the age from step 2?", operation=None)


def _spoken_of_in_chinese(d: dict[str, Any]) -> None:
    d["sub_questions"][0].update(question="步骤2得到的年龄是多少？", operation=None)


def _repeated(d: dict[str, Any]) -> None:
    again = {**d["sub_questions"][0], "id": 3}
    d["sub_questions"].append(again)
    d["scenario"] = "parallel_multi_hop"


def _wrong(d: dict[str, Any]) -> None:
    d["sub_questions"][1]["answer"]["value"] = 53


def _lost_row(d: dict[str, Any]) -> None:
    d["knowledge"] = [d["knowledge"][0], {**d["knowledge"][1], "rows": [["Ben Cole", 41]]}]


def _no_operation(d: dict[str, Any]) -> None:
    d["sub_questions"][0]["operation"] = None


def _final(d: dict[str, Any]) -> None:
    d["final_answer"]["value"] = 41


def _blank(d: dict[str, Any]) -> None:
    d["sub_questions"][0]["question"] = ""


def _unnamed(d: dict[str, Any]) -> None:
    d["main_question"] = "What is the age of the captain of that boat?"


def _foreign(d: dict[str, Any]) -> None:
    d["entities"] = ["Zed Crow"]


VIOLATIONS: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (_no_steps, "no_steps"),
    (_same_id, "bad_ids"),
    (_unresolved, "bad_ids"),
    (_circle, "cycle"),
    (_level, "hop_level"),
    (_label, "scenario"),
    (_empty, "empty_answer"),
    (_type, "answer_type"),
    (_boolean, "answer_type"),
    (_unused, "unused_dependency"),
    (_undeclared, "undeclared_dependency"),
    (_spoken_of, "undeclared_dependency"),
    (_spoken_of_in_chinese, "undeclared_dependency"),
    (_repeated, "repeated_call"),
    (_wrong, "answer_mismatch"),
    (_lost_row, "not_derivable"),
    (_no_operation, "no_operation"),
    (_final, "final_answer"),
    (_blank, "empty_question"),
    (_unnamed, "not_in_question"),
    (_foreign, "foreign_entity"),
]


@pytest.mark.parametrize(("violate", "reason"), VIOLATIONS, ids=lambda v: getattr(v, "__name__", v))
def test_each_rule_catches_its_violation(
    violate: Callable[[dict[str, Any]], None], reason: str, documents: Any, build: Any
) -> None:
    document = documents["chain"]()
    violate(document)
    assert verdict(build, document) == reason


def test_a_code_is_no_name_of_any_split(documents: Any, build: Any) -> None:
    document = documents["chain"]()
    document["entities"] = [*document["entities"], "EN-31", "编号7"]
    assert verdict(build, document) is None
    document["entities"] = [*document["entities"], "Zed Crow"]
    assert verdict(build, document) == "foreign_entity"


def test_a_step_of_thousands_of_digits_is_no_step(documents: Any, build: Any) -> None:
    document = documents["chain"]()
    document["sub_questions"][0]["question"] += f" Not of step {'1' * 5000}, but of step {'9' * 9}."
    assert verdict(build, document) is None
    steps = [
        {**step, "answer": step["answer"]["value"], "operation": None, "bar": None}
        for step in document["sub_questions"]
    ]
    variables = {"main_question": "?", "kind": "read_only", "steps": steps}
    assert sequential(variables, random.Random(0)).verdicts


def test_hop_budget(documents: Any, build: Any) -> None:
    problem = check(build(documents["chain"]()), (1, 3), NAMES)
    assert problem is not None
    assert problem[0] == "hop_range"


def test_answer_in_the_question_is_refused_but_not_for_a_comparison(
    documents: Any, build: Any
) -> None:
    document = documents["chain"]()
    document["sub_questions"].pop()
    document.update(
        scenario="single_hop",
        final_answer={"type": "string", "value": "Ada Finch"},
        main_question="Is Ada Finch the captain of Blue Heron?",
    )
    assert verdict(build, document) == "answer_in_question"
    assert verdict(build, documents["comparison"]()) is None


def test_several_ends_need_a_list_in_order_of_ids(documents: Any, build: Any) -> None:
    document = documents["comparison"]()
    document["sub_questions"].pop()
    document["main_question"] = "What are the length of Blue Heron and of Red Kite?"
    document["final_answer"] = {"type": "list", "value": [12, 20]}
    assert verdict(build, document) is None
    document["final_answer"] = {"type": "list", "value": [20, 12]}
    assert verdict(build, document) == "final_answer"
    document["final_answer"] = {"type": "number", "value": 20}
    assert verdict(build, document) == "final_answer"


def test_a_summary_without_operation_may_or_may_not_count(documents: Any, build: Any) -> None:
    document = documents["comparison"]()
    document["knowledge"] = []
    for step in document["sub_questions"]:
        step["operation"] = None
    assert verdict(build, document) is None
    document["scenario"] = "parallel_multi_hop"
    assert verdict(build, document) is None
    document["scenario"] = "multi_hop"
    assert verdict(build, document) == "scenario"


def test_typed_equality() -> None:
    number = Answer(type=AnswerType.NUMBER, value=1.5, tolerance=0.01)
    assert same(1.509, number)
    assert not same(1.52, number)
    assert not same("1.5", number)
    assert same([2, 1], Answer(type=AnswerType.LIST, value=[1, 2], ordered=False))
    assert not same([2, 1], Answer(type=AnswerType.LIST, value=[1, 2]))
    assert not same([1, 1], Answer(type=AnswerType.LIST, value=[1]))
    assert not same(2, Answer(type=AnswerType.STRING, value="2"))


def test_true_is_not_the_number_1_and_no_number_is_too_large_to_compare() -> None:
    assert not same(True, Answer(type=AnswerType.NUMBER, value=1))
    assert not same([True, 2], Answer(type=AnswerType.LIST, value=[1, 2]))
    assert not same({"a": [1]}, Answer(type=AnswerType.RECORD, value={"a": [True]}))
    assert same({"a": [1.0]}, Answer(type=AnswerType.RECORD, value={"a": [1]}))
    assert same([True], Answer(type=AnswerType.LIST, value=[True]))
    assert not same(1.5, Answer(type=AnswerType.NUMBER, value=10**400))
