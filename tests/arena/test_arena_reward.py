from __future__ import annotations

import json
from typing import Any

import pytest

from astra.arena.reward import EPSILON, FinalAnswer, RewardMode, score_episode
from astra.records.environment import Arena
from astra.records.message import CallStatus, ExecutedCall, ToolCall, ToolResult

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
        ([], FINAL, 4, 1, 1),
        ([], None, 4, 0, 1),
        ([AMBER, AMBER, JADE], FINAL, 4, 3, 4),
        ([AMBER, JADE, ROOMS_BY_CHANCE], FINAL, 4, 3, 4),
        ([FAILED, JADE, ROOMS], FINAL, 4, 3, 4),
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


def test_the_papers_modes(arena: Arena) -> None:
    calls = [AMBER, JADE, AMBER, AMBER]

    def reward(mode: RewardMode) -> float:
        return score_episode(arena, calls, FINAL, mode, FinalAnswer.IGNORE).reward

    assert reward(RewardMode.RECALL) == pytest.approx(2 / 3)
    assert reward(RewardMode.PRECISION) == pytest.approx(2 / 4, abs=1e-6)
    assert reward(RewardMode.F1) == pytest.approx(2 * 2 / (3 + 4), abs=1e-6)
    assert reward(RewardMode.ANSWER) == 1.0


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
