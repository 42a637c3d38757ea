"""Policies without a model: what each plays, and that arenas which they misorder are named."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from arena_samples import one_parameter_tool

from astra.arena.reward import EpisodeScore
from astra.arena.scripted import MOST, ScriptedPolicy, calls_by_name, misordered, rate, script
from astra.records.environment import Arena, Band
from astra.records.message import ToolCall
from astra.sandbox.protocol import Sandbox

Scores = dict[ScriptedPolicy, EpisodeScore]


@pytest.fixture
def scores(arena: Arena, sandbox: Sandbox) -> Scores:
    return rate([arena], sandbox)[0]


def made(calls: list[ToolCall]) -> list[tuple[str, object]]:
    return [(call.name, json.loads(call.arguments)["listing"]) for call in calls]


def test_every_policy_is_bounded_on_an_honest_arena(arena: Arena, scores: Scores) -> None:
    assert misordered(arena, scores) == ""
    assert set(scores) == set(ScriptedPolicy)
    assert scores[ScriptedPolicy.GOLD].success
    for policy, most in MOST.items():
        assert scores[policy].reward <= most
    assert not scores[ScriptedPolicy.ANSWER].success


def test_the_true_answer_alone_is_said_without_a_call(arena: Arena) -> None:
    assert script(ScriptedPolicy.ANSWER, arena) == ([], script(ScriptedPolicy.GOLD, arena)[1])


def test_names_lead_where_they_repeat_the_question(arena: Arena) -> None:
    calls, answer = script(ScriptedPolicy.NAMES, arena)
    assert made(calls) == [
        ("get_price", "Amber Cove"), ("get_price", "Jade Mill"), ("count_rooms", "Jade Mill"),
    ]  # fmt: skip
    assert answer == script(ScriptedPolicy.GOLD, arena)[1]


def test_names_mislead_where_they_do_not(arena: Arena, sandbox: Sandbox) -> None:
    """A tool named unlike the question loses to a distractor that is named like it."""
    offers = {offer.tool.name: offer for offer in arena.tools}
    quote = one_parameter_tool(
        "fetch_quote", offers["get_price"].code.replace("get_price", "fetch_quote")
    )
    steps = tuple(
        step.model_copy(update={"tool_name": "fetch_quote"})
        if step.tool_name == "get_price"
        else step
        for step in arena.steps
    )
    unlike = arena.model_copy(
        update={
            "tools": (quote, offers["count_rooms"]),
            "steps": steps,
            "irrelevant": {Band.LOW: (one_parameter_tool("get_fuel_price", ""),)},
        }
    )
    assert [call.name for call in calls_by_name(unlike)] == [
        "get_fuel_price", "get_fuel_price", "count_rooms",
    ]  # fmt: skip
    scores = rate([unlike], sandbox)[0]
    assert misordered(unlike, scores) == ""
    assert scores[ScriptedPolicy.NAMES].reward < 0.5
    assert scores[ScriptedPolicy.NAMES].solved == 1


def test_of_several_names_the_first_is_taken(arena: Arena) -> None:
    nothing_shared = arena.model_copy(
        update={"steps": tuple(step.model_copy(update={"question": "?"}) for step in arena.steps)}
    )
    assert {call.name for call in calls_by_name(nothing_shared)} == {"count_rooms"}


@pytest.mark.parametrize(
    ("policy", "reward", "success", "fault"),
    [
        (ScriptedPolicy.GOLD, 0.9, True, "gold scores 0.900000"),
        (ScriptedPolicy.GOLD, None, False, "gold scores 1.000000"),
        (ScriptedPolicy.SILENT, 0.01, False, "silent scores 0.010000, at most 0.0 is fair"),
        (ScriptedPolicy.ANSWER, 0.06, False, "answer scores 0.060000, at most 0.05 is fair"),
        (ScriptedPolicy.REPEAT, 0.51, True, "repeat scores 0.510000, at most 0.5 is fair"),
        (ScriptedPolicy.EMPTY, 1.0, False, "empty scores 1.000000, gold 1.000000"),
        (ScriptedPolicy.GUESS, 0.3, True, "guess scores 0.300000, gold 1.000000"),
        (ScriptedPolicy.ANSWER, 0.05, True, "answer scores 0.050000, gold 1.000000"),
    ],
)  # fmt: skip
def test_an_arena_that_pays_the_wrong_policy_is_named(
    arena: Arena, scores: Scores, policy: ScriptedPolicy, reward: float | None, success: bool,
    fault: str,
) -> None:  # fmt: skip
    paid = scores[policy].reward if reward is None else reward
    spoilt = {**scores, policy: replace(scores[policy], reward=paid, success=success)}
    assert misordered(arena, spoilt) == fault


def test_the_names_may_be_all_that_it_takes(arena: Arena, scores: Scores) -> None:
    paid = {**scores, ScriptedPolicy.NAMES: scores[ScriptedPolicy.GOLD]}
    assert misordered(arena, paid) == ""
