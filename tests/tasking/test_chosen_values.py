"""Required values that the agent may choose: marked by a writer, let pass by a judge."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from test_stated_values import Scripted, chain_of, scores, steps_in, task_of, tools_in
from test_tasking import config, said, server

from astra.llm.protocol import UnfitReply
from astra.prompting import render
from astra.records.graph import ArgumentOrigin, ArgumentSource, ChainStep
from astra.records.message import Message, MessageRole
from astra.records.score import Rejection
from astra.records.tool import Tool
from astra.store.metrics import StageMetrics
from astra.tasking.asks import (
    PlannedArgument,
    PlannedStep,
    WrittenTask,
    as_plan,
    chain_task_ask,
    score_ask,
    server_task_ask,
)
from astra.tasking.checks import TaskProblem, check_plan, check_question, task_literals
from astra.tasking.drafts import Draft
from astra.tasking.offline.reading import plan_in, planned
from astra.tasking.replanning import check_same_calls
from astra.tasking.scoring import score_task
from astra.tasking.stated import chosen_values, given_values, settled
from astra.tasking.unsolvable import droppable
from astra.tasking.variant_asks import diverse_ask, replan_ask
from astra.tasking.writing import checked_plan, merge_plan
from astra.trajectories.offline.expert import ScriptedExpert

FIXTURES = Path(__file__).parents[1] / "fixtures"
SIX_SERVERS = FIXTURES / "exchanges" / "six_servers.jsonl.gz"
SPOT = {
    "type": "object",
    "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
    "required": ["x", "y"],
}
PIN = Tool(
    name="pin_note",
    description="Pin a note to a board.",
    parameters={
        "type": "object",
        "properties": {
            "board": {"type": "string"},
            "text": {"type": "string"},
            "spot": {"$ref": "#/$defs/Spot"},
            "colour": {"enum": ["red", "blue"]},
        },
        "required": ["board", "text", "spot"],
        "$defs": {"Spot": SPOT},
    },
)
FIND = Tool(
    name="find_spot",
    description="A free spot on a board.",
    parameters={
        "type": "object",
        "properties": {"board": {"type": "string"}},
        "required": ["board"],
    },
)
BOARDS = server("boards", "office", (PIN, FIND))
NAMED = {PIN.name: PIN, FIND.name: FIND}
QUESTION = 'Put a note that says "Water the ferns" on the board Hallway, please.'


def picked(value: Any) -> ArgumentSource:
    return ArgumentSource(origin=ArgumentOrigin.CHOSEN, value=value)


def pin(spot: ArgumentSource | None, **more: ArgumentSource) -> ChainStep:
    arguments = {"board": said("Hallway"), "text": said("Water the ferns")}
    spots = {} if spot is None else {"spot": spot}
    return ChainStep(tool="pin_note", arguments={**arguments, **spots, **more})


CORNER = {"x": 2, "y": 3}
PLAN = (pin(picked(CORNER)),)
UNBOUND = ChainStep(
    tool="pin_note", arguments={name: said(None) for name in ("board", "text", "spot")}
)
TASK = task_of(QUESTION, *PLAN)


def written(**spot: Any) -> WrittenTask:
    arguments = (
        PlannedArgument(name="board", value="Hallway"),
        PlannedArgument(name="text", value="Water the ferns"),
        PlannedArgument(name="spot", **spot),
    )
    return WrittenTask(
        question=QUESTION, steps=(PlannedStep(tool="pin_note", arguments=arguments),)
    )


@pytest.mark.parametrize(
    ("argument", "origin"),
    [
        ({"chosen": True, "value": CORNER}, ArgumentOrigin.CHOSEN),
        ({"chosen": True, "value": CORNER, "said": " "}, ArgumentOrigin.CHOSEN),
        ({"chosen": True, "value": CORNER, "said": "top left"}, ArgumentOrigin.TASK),
        ({"chosen": True, "value": CORNER, "step": 0}, ArgumentOrigin.OUTPUT),
        ({"value": CORNER}, ArgumentOrigin.TASK),
        ({"chosen": True}, None),
    ],
)
def test_what_a_writer_marks_is_chosen_unless_somebody_gives_it(
    argument: dict[str, Any], origin: ArgumentOrigin | None
) -> None:
    (step,) = as_plan(written(**argument).steps)
    source = step.arguments.get("spot")
    assert (source.origin if source else None) == origin
    if origin is ArgumentOrigin.CHOSEN:
        assert step.arguments["spot"] == picked(CORNER)


def test_a_chosen_value_is_no_value_of_the_user() -> None:
    chain = chain_of(UNBOUND)
    plan = checked_plan(written(chosen=True, value=CORNER), BOARDS, chain, "en", 40)
    assert plan == PLAN
    assert [one.argument for one in given_values(QUESTION, plan, NAMED)] == ["board", "text"]
    assert chosen_values(plan) == {"0.spot": CORNER}
    assert task_literals(plan) == ["Hallway", "Water the ferns"]
    assert settled(QUESTION, plan, NAMED) == plan
    check_question(QUESTION, plan, BOARDS.tools, "en", 40)
    assert (0, "spot") not in droppable(QUESTION, plan, NAMED)


def test_what_is_neither_said_nor_chosen_is_still_missed() -> None:
    with pytest.raises(TaskProblem, match="spot"):
        checked_plan(written(), BOARDS, chain_of(UNBOUND), "en", 40)
    with pytest.raises(TaskProblem, match="does not stand in the request"):
        checked_plan(written(value=CORNER, said="x 2, y 3"), BOARDS, chain_of(UNBOUND), "en", 40)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (pin(picked({"x": 2})), "value_violates_schema"),
        (pin(picked("left")), "value_violates_schema"),
        (pin(picked(CORNER), colour=picked("red")), "chosen_not_required"),
        (pin(None), "plan_argument_missing"),
    ],
)
def test_a_chosen_value_has_to_fit_and_to_be_needed(step: ChainStep, reason: str) -> None:
    with pytest.raises(TaskProblem) as problem:
        check_plan([step], NAMED)
    assert problem.value.reason == reason
    check_plan(PLAN, NAMED)


def test_what_a_chain_takes_from_a_result_or_a_default_is_not_chosen() -> None:
    for source in (
        ArgumentSource(origin=ArgumentOrigin.OUTPUT, step=0, path=("spot",)),
        ArgumentSource(origin=ArgumentOrigin.DEFAULT, value={"x": 0, "y": 0}),
    ):
        chain = (ChainStep(tool="find_spot", arguments={"board": said(None)}), pin(source))
        mine = (ChainStep(tool="find_spot", arguments={"board": said("Hallway")}), *PLAN)
        assert merge_plan(chain, mine)[1].arguments["spot"] == source


@pytest.mark.parametrize(
    ("wanted", "found", "same"),
    [
        (picked(CORNER), picked({"x": 9, "y": 9}), True),
        (picked(CORNER), None, True),
        (picked(CORNER), said(CORNER), True),
        (picked(CORNER), said({"x": 9, "y": 9}), False),
        (picked(CORNER), said(CORNER).model_copy(update={"said": "top left"}), False),
        (picked(CORNER), ArgumentSource(origin=ArgumentOrigin.OUTPUT, step=0), False),
        (said(CORNER), picked(CORNER), False),
    ],
)
def test_whoever_plans_anew_may_choose_another_value(
    wanted: ArgumentSource, found: ArgumentSource | None, same: bool
) -> None:
    look = ChainStep(tool="find_spot", arguments={"board": said("Hallway")})
    plans = (look, pin(wanted)), (look, pin(found))
    if same:
        check_same_calls(QUESTION, *plans, NAMED)
        return
    with pytest.raises(TaskProblem) as problem:
        check_same_calls(QUESTION, *plans, NAMED)
    assert problem.value.reason == "replan_other_values"


def outcome(*wrong: tuple[str, str]) -> tuple[Draft | Rejection, dict[str, int]]:
    metrics = StageMetrics("t")
    reply = scores(*wrong)
    found = asyncio.run(score_task(BOARDS, TASK, Scripted(reply), config().thresholds, metrics))
    return found, dict(metrics.counts)


def test_the_judge_decides_whether_a_user_would_leave_it_open() -> None:
    kept, counts = outcome()
    assert isinstance(kept, Draft)
    assert counts == {"values_stated": 2, "values_chosen": 1}
    dropped, counts = outcome(("0.spot", "The wish is about where it hangs."))
    assert isinstance(dropped, Rejection)
    assert dropped.reason == "value_wrongly_chosen"
    assert dropped.said == "0.spot: The wish is about where it hangs."
    assert dropped.detail.startswith("0.spot chosen -> {'x': 2, 'y': 3}: Put a note")
    assert counts == {"values_stated": 2, "values_wrong": 1}


def test_the_judge_is_told_what_is_chosen_and_only_where_something_is() -> None:
    ask = score_ask(BOARDS, TASK.task)
    prompt = render(ask.template, ask.shown)
    assert '"spot": {"origin": "chosen", "value": {"x": 2, "y": 3}}' in prompt
    assert "every value of origin `chosen`, at 0.spot." in prompt
    with pytest.raises(UnfitReply, match=r"there is no place \['0.colour'\]"):
        ask.accepted(scores(("0.colour", "?")))
    stated = task_of("Hallway, Water the ferns, 2 and 3", pin(said(CORNER))).task
    ask = score_ask(BOARDS, stated)
    assert "chosen`" not in render(ask.template, ask.shown)


def test_writers_and_planners_may_choose() -> None:
    task = TASK.task
    for ask in (
        chain_task_ask(BOARDS, chain_of(UNBOUND), 0, "en", 40),
        server_task_ask(BOARDS, 1, 0, "en", 40),
        server_task_ask(BOARDS, 2, 0, "en", 40),
        diverse_ask(BOARDS, task, 0, 40),
        replan_ask(BOARDS, task, task),
    ):
        assert '"chosen": true' in render(ask.template, ask.shown), ask.template


def test_a_strong_models_request_for_a_place_in_a_room_names_no_square() -> None:
    """It marks the square as the agent's to choose; as one that the user names it is refused."""
    marked: list[tuple[WrittenTask, str]] = []
    with gzip.open(SIX_SERVERS, "rt", encoding="utf-8") as lines:
        exchanges = [json.loads(line) for line in lines]
    for exchange in exchanges:
        form = exchange["ask"].get("response_format") or {}
        if form.get("json_schema", {}).get("name") == "WrittenTask":
            task = WrittenTask.model_validate_json(exchange["answer"]["content"])
            if any(argument.chosen for step in task.steps for argument in step.arguments):
                marked.append((task, exchange["ask"]["messages"][-1]["content"]))
    ((task, prompt),) = marked
    of, chain = server("real", "real", tuple(tools_in(prompt))), chain_of(*steps_in(prompt))
    plan = checked_plan(task, of, chain, "en", 120)
    assert list(chosen_values(plan)) == ["1.position"]
    steps = task.model_dump(mode="json")["steps"]
    for argument in steps[1]["arguments"]:
        if argument["name"] == "position":
            argument |= {"chosen": False, "said": "x 2, y 3"}
    stated = WrittenTask.model_validate({"question": task.question, "steps": steps})
    with pytest.raises(TaskProblem, match=r"1\.position"):
        checked_plan(stated, of, chain, "en", 120)


def test_rules_keep_what_was_chosen_and_choose_nothing() -> None:
    shown = plan_in([step.model_dump(mode="json") for step in PLAN])
    assert as_plan(planned(shown)) == PLAN


def test_the_scripted_expert_makes_the_call_with_the_planned_value() -> None:
    expert = ScriptedExpert((TASK.task,))
    request = Message(role=MessageRole.USER, content=QUESTION)
    turn = asyncio.run(expert.act([request], [PIN]))
    (call,) = turn.tool_calls
    assert json.loads(call.arguments)["spot"] == CORNER
