"""What calls cost: repeated ones, reads that check a write, and what that leaves of a reward."""

from __future__ import annotations

import json
from typing import Any

import pytest
from arena_samples import one_parameter_tool
from hypothesis import given
from hypothesis import strategies as st

from astra.arena.charges import REPEATED, cost
from astra.arena.reward import EPSILON, FinalAnswer, RewardMode, score_episode
from astra.records.base import compact_json
from astra.records.environment import Arena, ArenaStep
from astra.records.message import CallStatus, ExecutedCall, ToolCall, ToolResult
from astra.records.qa import Answer, AnswerType, QuestionKind, Scenario, Split
from astra.records.state import ArenaState, Tables, WorldState

START: Tables = {"stays": []}


def made(
    tool: str, arguments: Any, value: object = None, status: CallStatus = CallStatus.OK
) -> ExecutedCall:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    call = ToolCall(id="c", name=tool, arguments=text)
    return ExecutedCall(
        turn=0, call=call, result=ToolResult(status=status, content="", value=value)
    )


def number(value: int) -> Answer:
    return Answer(type=AnswerType.NUMBER, value=value)


def reserve(k: int, value: object = True, status: CallStatus = CallStatus.OK) -> ExecutedCall:
    return made("reserve", {"room": f"Room {k}", "guest": "Nora Holt"}, value, status)


def look(k: int, guest: object = "Lena Orr") -> ExecutedCall:
    return made("get_guest", {"room": f"Room {k}"}, guest)


def price(k: int) -> ExecutedCall:
    return made("get_price", {"room": f"Room {k}"}, 100 + k)


def end_state(writes: int) -> Tables:
    return {"stays": [{"room": f"Room {k}", "guest": "Nora Holt"} for k in range(writes)]}


def house(reads: int, writes: int) -> Arena:
    """Prices of some rooms, and reservations of some."""
    steps = [
        ArenaStep(id=k, hop_level=1, question="p", answer=number(100 + k), tool_name="get_price",
                  arguments={"room": f"Room {k}"})
        for k in range(reads)
    ]  # fmt: skip
    steps += [
        ArenaStep(id=reads + k, hop_level=1, question="w", tool_name="reserve",
                  answer=Answer(type=AnswerType.BOOLEAN, value=True),
                  arguments={"room": f"Room {k}", "guest": "Nora Holt"})
        for k in range(writes)
    ]  # fmt: skip
    state = ArenaState(
        world=WorldState(tables=START, clock="2024-01-01T00:00:00"),
        columns={"stays": ("room", "guest")},
        writes={"reserve": ("stays",), "get_guest": (), "get_price": ()},
    )
    return Arena(
        qa_id="q", split=Split.TRAIN, domain="d", language="en", source="test",
        kind=QuestionKind.MIXED, scenario=Scenario.PARALLEL_SINGLE_HOP, hops=1, main_question="?",
        final_answer=Answer(type=AnswerType.LIST, value=[100 + k for k in range(reads)]),
        tools=tuple(one_parameter_tool(name, "", "room") for name in state.writes),
        steps=tuple(steps), entities=(), composition="c",
        state=compact_json(state.model_dump(mode="json")) if writes else "",
        expected_state=compact_json(end_state(writes)) if writes else "",
    )  # fmt: skip


HOUSE = house(1, 1)
WROTE = reserve(0)


def charged(*calls: ExecutedCall, useful: tuple[int, ...] = ()) -> int:
    return cost(HOUSE, calls, useful)


def test_every_call_costs_one_whatever_became_of_it() -> None:
    failed = [
        made("get_price", {"room": str(status)}, None, status)
        for status in CallStatus
        if status is not CallStatus.INFRA
    ]
    assert charged(*failed) == len(failed)
    assert charged() == 0


@pytest.mark.parametrize(
    "again",
    [
        '{"room": "Room 1", "day": 2}',
        '{"day":2,"room":"Room 1"}',
        '{"room": " room  1", "day": 2}',
    ],
)
def test_the_same_call_spelt_otherwise_is_a_repeated_one(again: str) -> None:
    first = made("get_price", {"room": "Room 1", "day": 2}, 101)
    assert charged(first, made("get_price", again, 101)) == 1 + REPEATED


@pytest.mark.parametrize(
    "other",
    [
        made("get_price", {"room": "Room 2"}),
        made("get_price", {"room": "Room 1", "day": 2}),
        made("get_guest", {"room": "Room 1"}),
        made("get_price", {"room": ["Room 1"]}),
        made("get_price", "Room 1", status=CallStatus.MALFORMED),
    ],
)
def test_another_call_is_none(other: ExecutedCall) -> None:
    assert charged(price(1), other) == 2


@pytest.mark.parametrize("text", ["{", "[" * 10**5, '{"a": NaN}', '{"a": 1, "a": 1}'])
def test_broken_calls_are_repeated_like_others(text: str) -> None:
    broken = made("get_price", text, status=CallStatus.MALFORMED)
    assert charged(broken, broken, broken) == 1 + 2 * REPEATED


def test_a_call_that_was_not_answered_may_be_made_again() -> None:
    for status in (CallStatus.TIMEOUT, CallStatus.REFUSED):
        lost = made("get_price", {"room": "Room 1"}, None, status)
        assert charged(lost, price(1)) == 2
        assert charged(lost, price(1), price(1)) == 2 + REPEATED


def test_reading_again_after_a_write_is_no_repetition() -> None:
    assert charged(price(1), WROTE, price(1)) == 3
    refused = reserve(0, None, CallStatus.ERROR)
    assert charged(price(1), refused, price(1)) == 2 + REPEATED, "nothing was written"
    assert charged(WROTE, price(1), WROTE, price(1)) == 2 + 2 * REPEATED, "the same write again"
    assert charged(WROTE, reserve(1), WROTE) == 2 + REPEATED, "it was made before"


@pytest.mark.parametrize(
    ("reads", "expected"),
    [
        ([look(0, "Nora Holt")], 1),
        ([made("get_stays", {"guest": "nora holt"})], 2),  # a tool that does not read the world
        ([made("get_guest", {"guest": "nora holt"}, 4)], 1),
        ([made("get_guest", {"page": 1}, {"rows": [{"g": "Nora Holt"}], "next_page": None})], 1),
        ([look(3, "Lena Orr")], 2),  # of another room
        ([made("get_guest", {"page": 1}, True)], 2),
        ([made("get_guest", {"room": "Room 0"}, None, CallStatus.ERROR)], 2),
        ([look(0, "Nora Holt"), look(0, "Nora Holt")], 1 + REPEATED),
        ([look(0, "Nora Holt"), made("get_price", {"room": "Room 0"}, 100)], 2),
    ],
)
def test_one_read_of_what_was_written_is_free(reads: list[ExecutedCall], expected: int) -> None:
    assert charged(WROTE, *reads) == expected


def test_each_write_may_be_checked_once_and_only_after_it() -> None:
    seen = look(0, "Nora Holt")
    assert charged(seen, WROTE) == 2
    assert charged(WROTE, reserve(1), seen, look(1, "Nora Holt"), look(2, "Nora Holt")) == 3
    assert charged(WROTE, seen, useful=(1,)) == 2, "what solves a step is no check"


def test_checking_every_write_costs_nothing_and_more_reads_do() -> None:
    arena = house(1, 2)
    calls = [price(0), reserve(0), look(0, "Nora Holt"), reserve(1), look(1, "Nora Holt")]
    score = score_episode(arena, calls, "[100]", end_state=end_state(2))
    assert (score.calls, score.success) == (4, True)
    assert score.reward == pytest.approx(2 * 4 / (2 * 4 + EPSILON))
    again = score_episode(arena, [*calls, look(2)], "[100]", end_state=end_state(2))
    assert again.calls == 5


def test_without_the_answer_as_a_subtask_every_call_costs_one() -> None:
    calls = [price(0), price(0), reserve(0), look(0, "Nora Holt")]
    score = score_episode(
        HOUSE, calls, "[100]", RewardMode.F1, FinalAnswer.IGNORE, end_state=end_state(1)
    )
    assert (score.calls, score.subtasks, score.solved) == (4, 2, 2)
    assert score.reward == pytest.approx(2 * 2 / (2 + 4 + EPSILON))


@given(st.integers(1, 5), st.integers(0, 3), st.randoms(use_true_random=False))
def test_every_gold_call_three_times_earns_at_most_half(reads: int, writes: int, rng: Any) -> None:
    """In whatever order, and whether or not a tool refuses to write again."""
    arena = house(reads, writes)
    gold = [price(k) for k in range(reads)] + [reserve(k) for k in range(writes)]
    honest = score_episode(arena, gold, compact_json(arena.final_answer.value),
                           end_state=end_state(writes))  # fmt: skip
    assert honest.success
    assert honest.reward == pytest.approx(1.0, abs=1e-6)
    calls = gold * 3
    rng.shuffle(calls)
    refuses = rng.random() < 0.5
    done: set[str] = set()
    for at, one in enumerate(calls):
        if one.call.name == "reserve" and refuses and one.call.arguments in done:
            calls[at] = made("reserve", one.call.arguments, None, CallStatus.ERROR)
        done.add(one.call.arguments)
    score = score_episode(arena, calls, compact_json(arena.final_answer.value),
                          end_state=end_state(writes))  # fmt: skip
    assert score.success
    assert score.reward <= 0.5


def test_two_steps_with_one_gold_call_may_make_it_twice() -> None:
    arena = house(1, 0)
    step = arena.steps[0]
    twice = arena.model_copy(update={"steps": (step, step.model_copy(update={"id": 9}))})
    assert cost(twice, [price(0), price(0)], {0}) == 2
    assert cost(twice, [price(0)] * 3, {0}) == 2 + REPEATED
