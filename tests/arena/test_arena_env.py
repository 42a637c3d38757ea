from __future__ import annotations

import asyncio
import json
import random

import pytest
from arena_samples import one_parameter_tool

from astra.agent.prompt import AGENT_SYSTEM_PROMPT
from astra.arena.env import ArenaEnv, ArenaError, execute_batch, open_envs
from astra.arena.irrelevant import IrrelevantMode, draw, without_record
from astra.arena.prompt import initial_messages
from astra.arena.reward import score_episode
from astra.records.environment import Arena, Band
from astra.records.message import CallStatus, ExecutedCall, ToolCall
from astra.records.tool import Tool
from astra.sandbox.protocol import Sandbox

LOOP = "def wait(listing):\n    while True:\n        pass\n"
COUNTER = "N = 0\n\n\ndef count(listing):\n    global N\n    N += 1\n    return N\n"


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(id="c", name=name, arguments=json.dumps(arguments))


def test_results_and_errors_as_the_model_reads_them(arena: Arena, sandbox: Sandbox) -> None:
    shapes = one_parameter_tool(
        "get_shape", "def get_shape(listing):\n    return {'b': [1, 2], 'a': 'x'}\n"
    )
    bare = one_parameter_tool("get_news", "")
    env = ArenaEnv(arena, sandbox, (shapes, bare))
    found = env.execute_now(call("get_price", listing="Amber Cove"))
    assert (found.status, found.content, found.value) == (CallStatus.OK, "812", 812)
    missing = env.execute_now(call("get_price", listing="Nobody"))
    assert (missing.status, missing.content) == (CallStatus.ERROR, "error: no listing named Nobody")
    crashed = env.execute_now(call("count_rooms", listing="Nobody"))
    assert crashed.status == CallStatus.ERROR
    assert crashed.content.startswith("error: KeyError")
    assert env.execute_now(call("get_shape", listing="x")).content == '{"b": [1, 2], "a": "x"}'
    unknown = env.execute_now(call("get_news", listing="x"))
    assert (unknown.status, unknown.content) == (CallStatus.ERROR, "error: no listing named x")
    assert env.execute_now(call("nope")).status == CallStatus.UNKNOWN_TOOL
    assert env.execute_now(call("get_price")).status == CallStatus.MALFORMED
    assert len(env.tools) == 4
    asyncio.run(env.close())


def test_a_timeout_ends_the_call_not_the_episode(arena: Arena, sandbox: Sandbox) -> None:
    env = ArenaEnv(arena, sandbox, (one_parameter_tool("wait", LOOP),))
    pairs = [
        (env, call("get_price", listing="Amber Cove")),
        (env, call("wait", listing="x")),
        (env, call("get_price", listing="Jade Mill")),
    ]
    first, slow, after = execute_batch(pairs)
    assert (first.status, slow.status) == (CallStatus.OK, CallStatus.TIMEOUT)
    assert (after.status, after.value) == (CallStatus.OK, 455)
    assert asyncio.run(env.execute(call("get_price", listing="Jade Mill"))).value == 455
    env.close_now()


def test_episodes_do_not_share_state(arena: Arena, sandbox: Sandbox) -> None:
    extra = (one_parameter_tool("count", COUNTER),)
    envs = open_envs([(arena, extra)] * 3, sandbox)
    pairs = [(env, call("count", listing="x")) for env in envs for _ in range(2)]
    assert [result.value for result in execute_batch(pairs)] == [1, 2, 1, 2, 1, 2]
    for env in envs:
        env.close_now()


def test_calls_that_arrive_together_run_in_order(arena: Arena, sandbox: Sandbox) -> None:
    env = ArenaEnv(arena, sandbox, (one_parameter_tool("count", COUNTER),))

    async def together() -> list[object]:
        results = await asyncio.gather(*(env.execute(call("count", listing="x")) for _ in range(9)))
        return [result.value for result in results]

    assert asyncio.run(together()) == list(range(1, 10))
    env.close_now()


def test_a_whole_episode_is_rewarded(arena: Arena, sandbox: Sandbox) -> None:
    env = ArenaEnv(arena, sandbox)
    gold = [call(step.tool_name, **step.arguments) for step in arena.steps if step.tool_name]
    results = execute_batch([(env, one) for one in gold])
    calls = [
        ExecutedCall(turn=0, call=one, result=result)
        for one, result in zip(gold, results, strict=True)
    ]
    score = score_episode(arena, calls, "Done. <answer>812; 455; 3</answer>")
    assert score.success
    assert score.reward == pytest.approx(1.0, abs=1e-6)
    env.close_now()


def test_broken_arenas_are_refused(arena: Arena, sandbox: Sandbox) -> None:
    with pytest.raises(ArenaError, match="not unique"):
        ArenaEnv(arena, sandbox, (arena.tools[0],))
    broken = one_parameter_tool("broken", "raise RuntimeError('no')\n")
    with pytest.raises(ArenaError, match="does not load"):
        open_envs([(arena, ()), (arena, (broken,))], sandbox)
    with pytest.raises(ArenaError, match="does not load"):
        ArenaEnv(arena, sandbox, (broken,)).open()


def test_the_episode_starts_with_the_shared_prompt(arena: Arena) -> None:
    system, user = initial_messages(arena)
    assert system.content == AGENT_SYSTEM_PROMPT
    assert user.content == arena.main_question


def _document(*required: str, **properties: object) -> Tool:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return Tool(name="a_document", description="A tool.", parameters=schema)


TEXT, COUNT, KIND = {"type": "string"}, {"type": "integer"}, {"type": "string", "enum": ["a", "b"]}


@pytest.mark.parametrize(
    ("document", "arguments", "expected"),
    [
        (_document("city", city=TEXT), {"city": "Ember Port"}, "no city named Ember Port"),
        (_document("城市", 城市=TEXT), {"城市": "北京"}, "no 城市 named 北京"),
        (_document("b", a=TEXT, b=TEXT), {"a": "x", "b": "y"}, "no b named y"),
        (_document("kind", "start_city", kind=KIND, start_city=TEXT),
         {"kind": "a", "start_city": "x"}, "no start city named x"),
        (_document("kind", kind=KIND), {"kind": "a"}, "nothing found for a"),
        (_document("n", n=COUNT), {"n": 5}, "nothing found for 5"),
    ],
)  # fmt: skip
def test_a_document_answers_like_a_tool_without_a_record(
    document: Tool, arguments: dict[str, object], expected: str
) -> None:
    result = without_record(document, arguments)
    assert (result.status, result.content) == (CallStatus.ERROR, f"error: {expected}")
    assert without_record(document, arguments) == result


def test_a_document_without_arguments_lists_nothing() -> None:
    assert without_record(_document(), {}).model_dump() == {
        "status": CallStatus.OK, "content": "[]", "value": [],
    }  # fmt: skip


def test_nothing_gives_a_document_away(arena: Arena, sandbox: Sandbox) -> None:
    """It says what a tool of another arena says of a name that only this question has."""
    running = one_parameter_tool(
        "get_rent", "def get_rent(port):\n    raise ValueError(f'no port named {port}')\n", "port"
    )
    bare = one_parameter_tool("get_ferry", "", "port")
    env = ArenaEnv(arena, sandbox, (running, bare))
    one, other = (env.execute_now(call(name, port="Jade")) for name in ("get_rent", "get_ferry"))
    assert one == other
    assert env.execute_now(call("get_ferry", harbour="x")).status == CallStatus.MALFORMED
    env.close_now()


def _with_candidates(arena: Arena) -> Arena:
    def tools(prefix: str) -> tuple[object, ...]:
        return tuple(one_parameter_tool(f"{prefix}_{i}", "") for i in range(4))

    taken = one_parameter_tool("get_price", "")
    return arena.model_copy(
        update={
            "irrelevant": {
                Band.HIGH: (taken, *tools("high")),
                Band.MEDIUM: (*tools("medium"), *tools("high")[:1]),
                Band.LOW: tools("low"),
            }
        }
    )


def test_banded_draws_up_to_k_of_each_band(arena: Arena) -> None:
    offered = _with_candidates(arena)
    for seed in range(20):
        names = [
            tool.tool.name for tool in draw(offered, IrrelevantMode.BANDED, 2, random.Random(seed))
        ]
        assert len(set(names)) == len(names) == 6
        assert "get_price" not in names
        for band in ("high", "medium", "low"):
            assert sum(name.startswith(band) for name in names) == 2
    assert len(draw(offered, IrrelevantMode.BANDED, 99, random.Random(0))) == 12
    assert draw(offered, IrrelevantMode.NONE, 2, random.Random(0)) == ()


def test_random_ignores_bands_and_is_seeded(arena: Arena) -> None:
    offered = _with_candidates(arena)
    draws = {
        tuple(t.tool.name for t in draw(offered, IrrelevantMode.RANDOM, 1, random.Random(seed)))
        for seed in range(30)
    }
    assert all(len(names) == 3 for names in draws)
    assert any(len({name.split("_")[0] for name in names}) == 1 for names in draws)
    again = [draw(offered, IrrelevantMode.RANDOM, 1, random.Random(5)) for _ in range(2)]
    assert again[0] == again[1]
