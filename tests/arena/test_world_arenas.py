"""Arenas in persistent worlds: resolved at load, played with one session, paid by the verdict."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world_samples import offer, yard

from astra.arena.answers import render_answer
from astra.arena.env import ArenaEnv, execute_batch, open_envs
from astra.arena.prompt import initial_messages
from astra.arena.reward import CALL_COST, RewardMode, score_episode
from astra.arena.statements import states
from astra.arena.worlds import UnknownWorld, base_of, goal_of, resolve, world_texts
from astra.records.environment import Arena, ArenaTool
from astra.records.message import CallStatus, ExecutedCall, ToolCall
from astra.records.qa import Answer, AnswerType, QuestionKind, Scenario
from astra.records.state import Write, WriteAction
from astra.records.world import (
    EventKind,
    GoalOutcome,
    OutcomeKind,
    ReadProof,
    Say,
    ToolRole,
    TraceEvent,
    UserAct,
    World,
    WorldGoal,
)
from astra.sandbox.protocol import Sandbox

ASKED = "Cancel my booking, and tell me the tier of reed@yard.example."
GOAL = WorldGoal(
    kind=QuestionKind.MIXED, outcome=GoalOutcome(kind=OutcomeKind.DONE),
    trace=(TraceEvent(kind=EventKind.USER, text=ASKED, act=UserAct.OPENING),),
    effect=(Write(action=WriteAction.DELETE, table="bookings", where={"person_id": "p2"}),),
    say=(Say(answer=Answer(type=AnswerType.STRING, value="basic"),
             read=(ReadProof(table="people", key="p2", column="tier"),)),),
)  # fmt: skip
CANCEL = ("cancel_booking", {"booking_id": "bookings-1"})
FIND = ("find_person", {"email": "reed@yard.example"})
BOOK = ("book_boat", {"person_id": "p1", "boat_id": "boat-1", "day": "2026-03-05"})


def arena_in(world: World, goal: WorldGoal = GOAL) -> Arena:
    return Arena(
        qa_id="qa", split=world.split, domain=world.domain, language="en", source="worlds",
        kind=goal.kind, scenario=Scenario.SINGLE_HOP, hops=1, main_question=ASKED,
        final_answer=goal.say[0].answer, tools=(), steps=(), entities=(), composition="c",
        world_id=world.id, goal=goal.model_dump_json(),
    )  # fmt: skip


def resolved(world: World | None = None, goal: WorldGoal = GOAL) -> Arena:
    world = world or yard(rules=())
    return resolve(arena_in(world, goal), world_texts([world]))


def tool_call(name: str, arguments: Any) -> ToolCall:
    return ToolCall(id="1", name=name, arguments=json.dumps(arguments))


def play(env: ArenaEnv, *calls: tuple[str, Any]) -> list[ExecutedCall]:
    asked = [tool_call(*call) for call in calls]
    results = [env.execute_now(call) for call in asked]
    return [
        ExecutedCall(turn=0, call=call, result=result)
        for call, result in zip(asked, results, strict=True)
    ]


def test_an_arena_gets_its_world_by_reference() -> None:
    world = yard()
    texts = world_texts([world])
    arena, other = (resolve(arena_in(world), texts) for _ in range(2))
    assert arena.state is other.state
    assert arena.id == arena_in(world).id
    assert [tool.tool.name for tool in arena.tools] == [tool.tool.name for tool in world.tools]
    assert base_of(arena) is base_of(other)
    assert goal_of(arena) == GOAL
    assert initial_messages(arena)[0].content == world.policy


def test_a_world_that_is_not_there() -> None:
    with pytest.raises(UnknownWorld, match="not among the 0 worlds"):
        resolve(arena_in(yard()), {})
    with pytest.raises(UnknownWorld, match="has not been given its world"):
        score_episode(arena_in(yard()), [], None, end_state={}, trace=())


def test_an_arena_without_a_world_stays_as_it_is(arena: Arena, sandbox: Sandbox) -> None:
    assert resolve(arena, {}) is arena
    env = ArenaEnv(arena, sandbox)
    assert env.trace is None
    env.say("nothing is noted")
    with pytest.raises(ValueError, match="no world"):
        env.hear(GOAL.trace[0])


@pytest.mark.parametrize("mode", list(RewardMode))
def test_the_goal_is_paid_less_its_calls(sandbox: Sandbox, mode: RewardMode) -> None:
    arena = resolved()
    env = ArenaEnv(arena, sandbox)
    calls = play(env, FIND, CANCEL)
    assert [call.result.status for call in calls] == [CallStatus.OK] * 2
    env.say("Done. Your tier is basic.")
    score = score_episode(arena, calls, None, mode, end_state=env.tables, trace=env.trace)
    assert score.success
    assert score.reward == pytest.approx(1 - 2 * CALL_COST)
    silent = score_episode(
        arena, calls, None, mode, end_state=env.tables, trace=(env.trace or ())[:-1]
    )
    assert (silent.success, silent.state_reached, silent.reward) == (False, True, 0.0)
    play(env, BOOK)
    spoiled = score_episode(arena, calls, None, mode, end_state=env.tables, trace=env.trace)
    assert (spoiled.reward, spoiled.state_reached) == (0.0, False)
    env.close_now()


def test_a_score_needs_the_end_and_the_trace() -> None:
    with pytest.raises(ValueError, match="end state and trace"):
        score_episode(resolved(), [], None, end_state={})


def test_the_trace_tells_all_that_happened(sandbox: Sandbox) -> None:
    env = ArenaEnv(resolved(), sandbox)
    play(
        env,
        ("cancel_booking", {"booking_id": "none"}),
        ("sink", {}),
        ("list_boats", {"seats": "x"}),
    )
    play(env, CANCEL)
    assert env.trace is not None
    opening, refused, unknown, malformed, done = env.trace
    assert (opening.text, opening.act) == (ASKED, UserAct.OPENING)
    assert refused.failed == "there is no such booking"
    assert unknown.failed == "there is no tool 'sink'"
    assert "seats" in malformed.failed
    assert done.changes[0].row is None
    assert done.result == {"cancelled": "bookings-1"}
    env.close_now()


def test_a_withheld_tool_comes_with_a_turn(sandbox: Sandbox) -> None:
    late = GOAL.model_copy(update={"withheld": ("cancel_booking",)})
    env = ArenaEnv(resolved(goal=late), sandbox)
    assert "cancel_booking" not in {tool.name for tool in env.tools}
    assert play(env, CANCEL)[0].result.status == CallStatus.UNKNOWN_TOOL
    turn = TraceEvent(
        kind=EventKind.USER, text="Try this.", act=UserAct.TOOL, adds_tools=("cancel_booking",)
    )
    env.hear(turn)
    assert "cancel_booking" in {tool.name for tool in env.tools}
    assert play(env, CANCEL)[0].result.status == CallStatus.OK
    env.close_now()


def test_calls_of_one_turn_see_each_other_in_order(sandbox: Sandbox) -> None:
    env = ArenaEnv(resolved(), sandbox)
    pairs = [(env, tool_call(*call)) for call in (BOOK, ("list_boats", {}), BOOK)]
    first, listed, again = execute_batch(pairs)
    assert first.status == CallStatus.OK
    assert [boat["free"] for boat in listed.value["items"]] == [False, False, True]
    assert again.content == "error: the boat is taken"
    env.close_now()


def test_many_arenas_of_a_world_do_not_meet(sandbox: Sandbox) -> None:
    arena = resolved()
    envs = open_envs([(arena, ())] * 3, sandbox)
    results = execute_batch([(env, tool_call(*call)) for env in envs for call in (CANCEL, FIND)])
    assert [result.status for result in results] == [CallStatus.OK] * 6
    assert all(env.tables is not None and env.tables["bookings"] == [] for env in envs)
    assert base_of(arena).rows["bookings"]
    for env in envs:
        env.close_now()


def test_a_session_that_dies_takes_nothing_with_it(sandbox: Sandbox) -> None:
    crash = offer("crash", "def crash(world):\n    raise SystemExit(1)", ToolRole.GET)
    env = ArenaEnv(resolved(yard((crash,), rules=())), sandbox)
    results = play(env, CANCEL, ("crash", {}), CANCEL, FIND)
    kinds = [call.result.status for call in results]
    assert kinds == [CallStatus.OK, CallStatus.ERROR, CallStatus.ERROR, CallStatus.OK]
    assert results[2].result.content == "error: there is no such booking"
    env.close_now()


def test_tools_from_elsewhere_run_beside_the_worlds(sandbox: Sandbox) -> None:
    code = "def add(one, other):\n    return one + other"
    schema = {
        "type": "object",
        "properties": {"one": {"type": "integer"}, "other": {"type": "integer"}},
    }
    extra = offer("add", code, ToolRole.GET).tool.model_copy(update={"parameters": schema})
    env = ArenaEnv(resolved(), sandbox, (ArenaTool(tool=extra, code=code),))
    assert play(env, ("add", {"one": 1, "other": 2}))[0].result.value == 3
    assert play(env, CANCEL)[0].result.status == CallStatus.OK
    env.close_now()


def test_rows_that_grow_beyond_the_limits_are_told(sandbox: Sandbox) -> None:
    body = (
        "def fill(world):\n    row = world.tables['boats'][0]\n"
        "    world.tables['boats'] += [{**row, 'boat_id': f'x{at}'} for at in range(1500)]"
    )
    tool = offer("fill", body, ToolRole.CREATE, ("boats",))
    env = ArenaEnv(resolved(yard((tool,), rules=())), sandbox)
    result = play(env, ("fill", {}))[0].result
    assert result.status == CallStatus.ERROR
    assert "fill changed 1500 rows; the limit is 1000" in result.content
    env.close_now()


@pytest.mark.parametrize(
    ("type", "value", "text", "stated"),
    [
        ("number", 1042, "It is 1,042.", True), ("number", 1042, "1042.00 EUR", True),
        ("number", 10, "the 1042", False), ("number", 10, "10.5", False),
        ("number", 12.5, "€12.50, fine", True), ("number", 3, "boat-3", False),
        ("number", 5, "2026-03-05", False), ("number", 5, "March 5, 2026", False),
        ("number", 5, "total:5", True), ("number", 30, "at 10:30", False),
        ("number", 4, "**4**", True), ("number", -5, "-$5", True), ("number", 5, "5%", False),
        ("date", "2026-03-05", "on 2026-03-05.", True),
        ("date", "2026-03-05", "5 March 2026", True),
        ("date", "2026-03-05", "the 5th of March 2026", True),
        ("date", "2026-03-05", "2026-03-051", False), ("date", "2026-03-05", "5 March 2027", False),
        ("string", "Heron 1", "the heron 1.", True), ("string", "Heron 1", "Heron 12", False),
        ("string", "Heron 1", "Heron 1-b", False),
        ("string", "L-12", "XL-12, L-123, L-12.5", False),
        ("string", "L-12", "(L-12)", True), ("enum", "in_transit", "It is in transit.", True),
        ("boolean", True, "是的", True),
        ("boolean", True, "订单 A12 是 pending", False),
        ("enum", "in_transit", "in transition", False), ("boolean", True, "Yes.", True),
        ("boolean", True, "Yes and no.", False), ("boolean", False, "maybe", False),
        ("list", ["a", 2], "a and 2", True), ("list", ["a", 2], "a and 3", False),
        ("record", {"x": 1, "y": "b"}, "b: 1", True), ("string", "", "anything", False),
    ],
)  # fmt: skip
def test_what_a_message_states(type: str, value: Any, text: str, stated: bool) -> None:
    assert states(Answer(type=AnswerType(type), value=value), text) is stated


@given(st.integers(-(10**9), 10**9) | st.decimals(0, 9999, places=2).map(float))
def test_a_number_is_stated_however_it_is_written(value: float) -> None:
    answer = Answer(type=AnswerType.NUMBER, value=value)
    assert states(answer, f"It is {render_answer(answer)}, as you asked.")
    assert states(answer, f"It is {value:,.2f}.")
    assert not states(answer, f"It is A{value}, {value}9 or x-{value}.")
