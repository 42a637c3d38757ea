"""A variant keeps its calls, not its words: what a judge's plan has to agree in."""

from __future__ import annotations

from typing import Any

import pytest
from test_tasking import piped, said, tool

from astra.records.graph import ArgumentOrigin, ArgumentSource, ChainStep
from astra.tasking.checks import TaskProblem
from astra.tasking.replanning import check_same_calls, said_anew, same_value

TOOLS = {
    one.name: one
    for one in (
        tool("find_order", {"type": "string"}, customer={"type": "string"}),
        tool("get_day", {"type": "string"}, order={"type": "string"}),
        tool("get_forecast", {"type": "string"}, location={"type": "string"}),
    )
}
TOOLS["get_day"].parameters["properties"]["format"] = {"type": "string", "default": "iso"}


def order(customer: Any = "Ada Berg", **more: Any) -> ChainStep:
    return ChainStep(tool="find_order", arguments={"customer": said(customer), **more})


def day(of: int = 0, **more: ArgumentSource) -> ChainStep:
    return ChainStep(tool="get_day", arguments={"order": piped(of), **more})


def weather(value: Any, words: str = "") -> ChainStep:
    given = said(value).model_copy(update={"said": words})
    return ChainStep(tool="get_forecast", arguments={"location": given})


PLAN = (order(), day(0), order("Bo Lind"), day(2))
ISO = ArgumentSource(origin=ArgumentOrigin.DEFAULT, value="iso")


@pytest.mark.parametrize(
    ("planned", "found"),
    [
        (PLAN, PLAN),
        (PLAN, (order("Bo Lind"), order(), day(1), day(0))),
        (PLAN, (order("ada  berg"), day(0), order("“Bo Lind”"), day(2))),
        ((order(), day(0, format=ISO)), (order(), day(0))),
        ((order(), day(0)), (order(), day(0, format=said("iso")))),
        ((weather("46.87,-113.99", "Missoula"),), (weather("46.8721,-113.9940", "missoula"),)),
    ],
    ids=["same", "other order", "other form", "default left out", "default said", "same words"],
)
def test_the_same_calls_in_any_sensible_order_and_form_are_the_same(
    planned: tuple[ChainStep, ...], found: tuple[ChainStep, ...]
) -> None:
    check_same_calls("?", planned, found, TOOLS)


@pytest.mark.parametrize(
    ("planned", "found", "reason"),
    [
        (PLAN, (), "replan_other_tools"),
        (PLAN, PLAN[:3], "replan_other_tools"),
        (PLAN, (*PLAN, day(0)), "replan_other_tools"),
        (PLAN, (*PLAN[:3], ChainStep(tool="invented", arguments={})), "replan_other_tools"),
        (PLAN, (order(), day(0), order("Bo Lund"), day(2)), "replan_other_values"),
        (PLAN, (order(), day(0), order("Bo Lind"), day(0)), "replan_other_values"),
        (PLAN, (day(1), order(), order("Bo Lind"), day(2)), "replan_other_values"),
        (PLAN, (order(), day(9), order("Bo Lind"), day(2)), "replan_other_values"),
        ((order(), day(0)), (order(), day(0, format=said("weekday"))), "replan_other_values"),
        (
            (order(), day(0)),
            (order(), ChainStep(tool="get_day", arguments={"order": said("7")})),
            "replan_other_values",
        ),
        (
            (weather("46.87,-113.99", "Missoula"),),
            (weather("47.50,-111.30", "Great Falls"),),
            "replan_other_values",
        ),
        (
            (order(),),
            (ChainStep(tool="find_order", arguments={}),),
            "replan_other_values",
        ),
    ],
)
def test_other_calls_are_told(
    planned: tuple[ChainStep, ...], found: tuple[ChainStep, ...], reason: str
) -> None:
    with pytest.raises(TaskProblem) as problem:
        check_same_calls("?", planned, found, TOOLS)
    assert problem.value.reason == reason
    assert problem.value.detail


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (5, 5.0, True),
        (5, "5", True),
        (1000, "1,000", True),
        (1.5, "1.50", True),
        ("007", 7, False),
        (True, 1, False),
        (True, "true", True),
        ("Codex Keeper", " “codex keeper”. ", True),
        ("Codex Keeper", "Codex Keeper API", False),
        (["a", "b"], ["b", "a"], True),
        (["a", "b"], ["a"], False),
        ({"x": 1}, {"x": "1"}, True),
        ({"x": 1}, {"y": 1}, False),
        ("北京", "北京", True),
        ("北京", "上海", False),
        (
            "Please call me back about the broken heating today",
            "please call me back today about the broken heating",
            True,
        ),
        (
            "Please call me back about the broken heating today",
            "The parcel was delivered to our neighbour on Monday morning",
            False,
        ),
        (None, "null", True),
        ("tower fan", "Tower fans", True),
        (["batteries", "box"], ["boxes", "battery"], True),
        ("tower fan", "tower fan heater", False),
        ("fan-1", "fans-1", False),
        ("bus", "bu", False),
        ("A4s", "A4", False),
    ],
)
def test_values_are_compared_by_what_they_mean(left: Any, right: Any, same: bool) -> None:
    assert same_value(left, right) is same
    assert same_value(right, left) is same


def test_a_variant_says_a_value_in_its_own_words() -> None:
    plan = (weather("46.87,-113.99", "Missoula"), order())
    found = (weather("46.87,-113.99", "where the Clark Fork meets the Bitterroot"), order())
    question = "What is it like where the Clark Fork meets the Bitterroot, and Ada Berg's order?"
    renewed = said_anew(question, plan, found)
    assert renewed[0].arguments["location"].said == "where the Clark Fork meets the Bitterroot"
    assert renewed[0].arguments["location"].value == "46.87,-113.99"
    assert renewed[1] == plan[1]
    # Words that still stand stay, and words that the judge made up are not taken.
    assert said_anew("In Missoula?", plan, found) == plan
    assert said_anew("Elsewhere?", plan, found) == plan


def test_a_difference_names_the_place_and_both_values() -> None:
    with pytest.raises(TaskProblem, match=r"0\.customer of find_order: 'Bo' instead of 'Ada'"):
        check_same_calls("?", (order("Ada"),), (order("Bo"),), TOOLS)
