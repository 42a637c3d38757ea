from __future__ import annotations

import json
from typing import Any

import pytest

from astra.arena.reward import EPSILON, FinalAnswer, RewardMode, rests_on, score_episode
from astra.records.environment import Arena
from astra.records.message import CallStatus, ExecutedCall, ToolCall, ToolResult
from astra.records.qa import Answer, AnswerType

FINAL = "<answer>812; 455; 3</answer>"


def made(
    tool: str, arguments: dict[str, Any], value: object, status: CallStatus = CallStatus.OK
) -> ExecutedCall:
    call = ToolCall(id="c", name=tool, arguments=json.dumps(arguments))
    return ExecutedCall(
        turn=0, call=call, result=ToolResult(status=status, content="", value=value)
    )


AMBER = made("get_price", {"listing": "Amber Cove"}, 812)
JADE = made("get_price", {"listing": "Jade Mill"}, 455)
ROOMS = made("count_rooms", {"listing": "jade mill"}, 3)
ROOMS_BY_CHANCE = made("count_rooms", {"listing": "Amber Cove"}, 3)
FAILED = made("get_price", {"listing": "X"}, 812, CallStatus.ERROR)
OUTAGE = made("get_price", {"listing": "X"}, None, CallStatus.INFRA)


@pytest.mark.parametrize(
    ("calls", "final", "n", "solved", "c"),
    [
        ([AMBER, JADE, ROOMS], FINAL, 4, 4, 4),
        ([AMBER, JADE, ROOMS], "<answer>812; 455; 4</answer>", 4, 3, 4),
        ([AMBER, JADE, ROOMS], None, 4, 3, 4),
        ([], FINAL, 4, 0, 1),
        ([AMBER, JADE], FINAL, 4, 2, 3),
        ([], None, 4, 0, 1),
        ([AMBER, AMBER, JADE], FINAL, 4, 2, 5),
        ([AMBER, JADE, ROOMS_BY_CHANCE], FINAL, 4, 2, 4),
        ([FAILED, JADE, ROOMS], FINAL, 4, 2, 4),
        ([FAILED, AMBER, JADE, ROOMS], FINAL, 4, 4, 5),
        ([OUTAGE, AMBER, JADE, ROOMS], FINAL, 4, 4, 4),
    ],
)
def test_f1_with_the_final_answer_as_a_subtask(
    arena: Arena, calls: list[ExecutedCall], final: str | None, n: int, solved: int, c: int
) -> None:
    score = score_episode(arena, calls, final)
    assert (score.subtasks, score.solved, score.calls) == (n, solved, c)
    assert score.f1 == score.reward == pytest.approx(2 * solved / (n + c + EPSILON), abs=1e-12)
    assert score.recall == solved / n
    assert score.precision == pytest.approx(solved / (c + EPSILON))
    assert score.success is (solved == 4)


@pytest.mark.parametrize(
    ("final", "ordered", "correct"),
    [
        ('[["B-2", "A-1"], 455, 3]', False, True),
        ('["B-2", "A-1"]; 455; 3', False, True),
        ('[["B-2", "A-1"], 455, 3]', True, False),
        ('[["B-2", "B-2"], 455, 3]', False, False),
    ],
)
def test_a_list_in_the_final_answer_counts_as_its_step_does(
    arena: Arena, final: str, ordered: bool, correct: bool
) -> None:
    codes = Answer(type=AnswerType.LIST, value=["A-1", "B-2"], ordered=ordered)
    first, *others = arena.steps
    whole = arena.final_answer.model_copy(update={"value": [codes.value, 455, 3]})
    steps = (first.model_copy(update={"answer": codes}), *others)
    nested = arena.model_copy(update={"final_answer": whole, "steps": steps})
    listed = made("get_price", {"listing": "Amber Cove"}, codes.value)
    score = score_episode(nested, [listed, JADE, ROOMS], f"<answer>{final}</answer>")
    assert score.answer_correct is correct


def test_the_papers_modes(arena: Arena) -> None:
    calls = [AMBER, JADE, AMBER, AMBER]

    def reward(mode: RewardMode) -> float:
        return score_episode(arena, calls, FINAL, mode, FinalAnswer.IGNORE).reward

    assert reward(RewardMode.RECALL) == pytest.approx(2 / 3)
    assert reward(RewardMode.PRECISION) == pytest.approx(2 / 4, abs=1e-6)
    assert reward(RewardMode.F1) == pytest.approx(2 * 2 / (3 + 4), abs=1e-6)
    assert reward(RewardMode.ANSWER) == 0.0
    calls.append(ROOMS)
    assert reward(RewardMode.ANSWER) == 1.0
    assert reward(RewardMode.PRECISION) == pytest.approx(3 / 5, abs=1e-6)


def test_calling_nothing_scores_zero_without_dividing_by_zero(arena: Arena) -> None:
    for mode in (RewardMode.F1, RewardMode.RECALL, RewardMode.PRECISION):
        assert score_episode(arena, [], FINAL, mode, FinalAnswer.IGNORE).reward == 0.0


def test_the_right_value_from_the_wrong_tool_solves_nothing(arena: Arena) -> None:
    stolen = made("count_rooms", {"listing": "Amber Cove"}, 812)
    assert score_episode(arena, [stolen], None).solved == 0


def test_the_value_in_the_text_but_not_typed_solves_nothing(arena: Arena) -> None:
    assert score_episode(arena, [made("get_price", {"listing": "Y"}, "812")], None).solved == 0


def test_one_call_cannot_solve_two_equal_subtasks(arena: Arena) -> None:
    first, second = arena.steps[0], arena.steps[1]
    same = arena.model_copy(
        update={"steps": (first, second.model_copy(update={"answer": first.answer}))}
    )
    assert score_episode(same, [AMBER], None).solved == 1
    both = [AMBER, made("get_price", {"listing": "Jade Mill"}, 812)]
    assert score_episode(same, both, None).solved == 2


def test_reward_never_exceeds_one(arena: Arena) -> None:
    """Two sub-questions with the same gold call: one call solves both."""
    first = arena.steps[0]
    twice = arena.model_copy(update={"steps": (first, first.model_copy(update={"id": 9}))})
    score = score_episode(twice, [AMBER], None, final_answer=FinalAnswer.IGNORE)
    assert score.solved == 2
    assert score.f1 == score.precision == 1.0


def test_precision_falls_with_every_useless_call(arena: Arena) -> None:
    calls = [AMBER, JADE, ROOMS]
    rewards = [score_episode(arena, calls + [FAILED] * k, FINAL).reward for k in range(5)]
    assert rewards == sorted(rewards, reverse=True)
    assert len(set(rewards)) == 5


def test_an_answer_that_was_known_or_guessed_is_paid_nothing(arena: Arena) -> None:
    for mode in RewardMode:
        for final_answer in FinalAnswer:
            score = score_episode(arena, [], FINAL, mode, final_answer)
            assert (score.answer_correct, score.success, score.reward) == (True, False, 0.0)


def test_the_answer_rests_on_the_end_that_gives_it_and_what_leads_there(arena: Arena) -> None:
    """Of two ends one gives the answer: the other is a sub-task of its own."""
    price, other, rooms, _ = arena.steps
    rooms = rooms.model_copy(update={"dependencies": (1,), "hop_level": 2})
    two_ends = arena.model_copy(
        update={"steps": (price, other, rooms), "final_answer": rooms.answer}
    )
    assert rests_on(two_ends) == {1, 3}
    paid = score_episode(two_ends, [AMBER, ROOMS], "3")
    assert (paid.solved, paid.subtasks, paid.success) == (3, 4, False)
    assert score_episode(two_ends, [JADE, ROOMS], "3").solved == 2, "without the price no answer"


def test_an_outcome_and_a_list_rest_on_every_step(arena: Arena) -> None:
    assert rests_on(arena) == {1, 2, 3}
    refusal = Answer(type=AnswerType.ENUM, value="not possible")
    barred = arena.steps[3].model_copy(update={"answer": refusal, "dependencies": ()})
    refused = arena.model_copy(
        update={"steps": (*arena.steps[:3], barred), "final_answer": refusal}
    )
    assert rests_on(refused) == {1, 2, 3}, "an end without any tool proves nothing"
    assert score_episode(refused, [], "not possible").reward == 0.0
    assert score_episode(refused, [AMBER, JADE, ROOMS], "not possible").success


def test_steps_without_a_tool_pass_on_what_they_rest_on(arena: Arena) -> None:
    """A part that is picked from a record: its step has no tool, the record's has."""
    record = {"listing": "Jade Mill", "price": 455, "rooms": 3}
    fetch = arena.steps[1].model_copy(
        update={"answer": Answer(type=AnswerType.RECORD, value=record)}
    )
    pick = arena.steps[2].model_copy(
        update={"tool_name": None, "arguments": {}, "dependencies": (2,), "hop_level": 2}
    )
    picked = arena.model_copy(update={"steps": (fetch, pick), "final_answer": pick.answer})
    assert rests_on(picked) == {2}
    fetched = made("get_price", {"listing": "Jade Mill"}, dict(reversed(record.items())))
    assert score_episode(picked, [fetched], "<answer>3</answer>").success
    other = made("get_price", {"listing": "Jade Mill"}, {**record, "price": 456})
    assert score_episode(picked, [other], "<answer>3</answer>").solved == 0


def test_lists_of_records_come_in_any_order(arena: Arena) -> None:
    rows = [{"room": "Ada", "beds": 2}, {"room": "Bay", "beds": 1}]
    listed = Answer(type=AnswerType.LIST, value=rows, ordered=False)
    step = arena.steps[0].model_copy(update={"answer": listed})
    one = arena.model_copy(update={"steps": (step,), "final_answer": Answer(
        type=AnswerType.STRING, value="Bay")})  # fmt: skip
    assert score_episode(one, [made("get_price", {"listing": "x"}, rows[::-1])], "Bay").success
    assert not score_episode(one, [made("get_price", {"listing": "x"}, rows[:1])], "Bay").success


ROOMS_SCHEMA = {
    "type": "object",
    "properties": {
        "listing": {"type": "string"},
        "unit": {"type": "string", "default": "rooms"},
        "floor": {"type": "integer"},
    },
    "required": ["listing"],
}


@pytest.mark.parametrize(
    ("gold", "arguments", "solved"),
    [
        ({}, {}, True),
        ({}, {"unit": "rooms"}, True),  # the default, given
        ({"unit": "rooms"}, {}, True),  # the default, left out
        ({"unit": "Rooms"}, {"unit": "rooms"}, True),
        ({"unit": "beds"}, {}, False),
        ({"unit": "beds"}, {"unit": "rooms"}, False),
        ({}, {"floor": 2}, True),  # a narrower question with the same answer
        ({"floor": 2}, {"floor": 2, "unit": "rooms"}, True),
        ({"floor": 2}, {}, False),
        ({"floor": 2}, {"floor": 3}, False),
        ({}, {"listing": "Amber Cove"}, False),  # the required one is another
    ],
)
def test_optional_arguments_that_make_no_difference(
    arena: Arena, gold: dict[str, Any], arguments: dict[str, Any], solved: bool
) -> None:
    price, rooms = arena.tools
    rooms = rooms.model_copy(
        update={"tool": rooms.tool.model_copy(update={"parameters": ROOMS_SCHEMA})}
    )
    step = arena.steps[2].model_copy(update={"arguments": {"listing": "Jade Mill", **gold}})
    asked = arena.model_copy(update={"tools": (price, rooms), "steps": (step,)})
    call = made("count_rooms", {"listing": "Jade Mill", **arguments}, 3)
    assert score_episode(asked, [call], None).solved == int(solved)


def test_the_gold_call_of_one_step_solves_no_other(arena: Arena) -> None:
    """With an extra argument it would pass for the other's, whose answer is equal."""
    price, rooms = arena.tools
    rooms = rooms.model_copy(
        update={"tool": rooms.tool.model_copy(update={"parameters": ROOMS_SCHEMA})}
    )
    broad = arena.steps[2]
    narrow = broad.model_copy(update={"id": 9, "arguments": {"listing": "Jade Mill", "floor": 1}})
    both = arena.model_copy(update={"tools": (price, rooms), "steps": (broad, narrow)})
    of_narrow = made("count_rooms", {"listing": "Jade Mill", "floor": 1}, 3)
    assert score_episode(both, [of_narrow], None).solved == 1
    assert score_episode(both, [of_narrow, ROOMS], None).solved == 2


@pytest.mark.parametrize("written", ["[1]", "no", "[" * 10**5])
def test_arguments_that_are_no_object_solve_nothing(arena: Arena, written: str) -> None:
    call = ROOMS.call.model_copy(update={"arguments": written})
    assert score_episode(arena, [ROOMS.model_copy(update={"call": call})], None).solved == 0
