from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import Ask, ModelConfig, ParseError, Reply
from astra.prompting import render
from astra.records.message import CallStatus, ToolCall, ToolResult
from astra.records.tool import Execution, InferredResult, ToolServer
from astra.text.names import Pool, pool_of
from astra.trajectories.emulated import EmulatedEnv, EmulatedReply, Setting, shown_state
from astra.trajectories.failures import FailureInjector, looks_transient
from astra.trajectories.offline.handlers import HANDLERS

OFFLINE = OfflineTeacher(ModelConfig(backend="offline", model="1"), HANDLERS)


def run(
    homes: ToolServer,
    *calls: tuple[str, dict[str, Any]],
    rate: float = 0.0,
    episode: str = "e",
    emulator: Any = OFFLINE,
    setting: Setting | None = None,
) -> list[ToolResult]:
    async def work() -> list[ToolResult]:
        failures = FailureInjector(rate, episode)
        env = EmulatedEnv(homes, homes.tools, emulator, failures, 0, 400, setting or Setting())
        return [
            await env.execute(ToolCall(id=f"call_{n}", name=name, arguments=json.dumps(arguments)))
            for n, (name, arguments) in enumerate(calls)
        ]

    return asyncio.run(work())


COVE = {"listing": "Amber Cove"}


def test_the_same_call_gets_the_same_reply_everywhere(homes: ToolServer) -> None:
    alone = run(homes, ("get_price", COVE))
    later = run(homes, ("find_agent", COVE), ("get_price", {"listing": "Opal Peak"}),
                ("get_price", COVE), episode="other")  # fmt: skip
    assert later[2] == alone[0]
    assert later[1] != alone[0]


def test_tools_agree_on_an_attribute(homes: ToolServer) -> None:
    price, agent, both = run(
        homes, ("get_price", COVE), ("find_agent", COVE), ("get_listing", COVE)
    )
    assert both.value["price"] == price.value
    assert set(both.value) == {"price", "agent"}
    assert pool_of(agent.value) == Pool.SERVERS


def test_writes_are_remembered_within_the_episode_only(homes: ToolServer) -> None:
    before, done, after, other = run(
        homes,
        ("get_price", COVE),
        ("set_price", {**COVE, "price": 777}),
        ("get_price", COVE),
        ("get_price", {"listing": "Opal Peak"}),
    )
    assert before.value != 777
    assert (done.content, after.content) == ("updated", "777")
    assert other.value != 777
    assert run(homes, ("get_listing", COVE))[0].value["price"] == before.value
    seen = run(homes, ("set_price", {**COVE, "price": 777}), ("get_listing", COVE))
    assert seen[1].value["price"] == 777


def test_what_was_deleted_is_gone(homes: ToolServer) -> None:
    city = {"city": "Silver Bay"}
    (listed,) = run(homes, ("list_listings", city))
    gone = listed.value[0]
    _, price, again = run(
        homes,
        ("delete_listing", {"listing": gone}),
        ("get_price", {"listing": gone}),
        ("list_listings", city),
    )
    assert price.status == CallStatus.ERROR
    assert price.content == f"error: no listing named {gone}"
    assert again.status == CallStatus.OK


def test_unknown_entities_are_rare_but_there(homes: ToolServer) -> None:
    statuses = [
        run(homes, ("get_price", {"listing": f"Amber Cove {n}"}))[0].status for n in range(400)
    ]
    assert 0 < statuses.count(CallStatus.ERROR) < 20


def test_failures_follow_the_rate_and_the_seed_and_leave_no_trace(homes: ToolServer) -> None:
    calls = [("set_price", {**COVE, "price": n + 1}) for n in range(300)]
    results = run(homes, *calls, rate=0.2)
    failed = [r for r in results if r.status in (CallStatus.TIMEOUT, CallStatus.UNREACHABLE)]
    assert 40 <= len(failed) <= 80
    assert {r.status for r in failed} == {CallStatus.TIMEOUT, CallStatus.UNREACHABLE}
    assert all(looks_transient(r.content) for r in failed)
    assert all(r.content.endswith("it may have taken effect") for r in failed)
    looked = run(homes, *[("get_price", COVE)] * 60, rate=0.2)
    outages = [r.content for r in looked if r.status is not CallStatus.OK]
    assert outages
    assert not any("taken effect" in text for text in outages)
    assert run(homes, *calls, rate=0.2) == results
    assert run(homes, *calls, rate=0.2, episode="f") != results
    injector = FailureInjector(0.5, "x")
    drawn = [injector.draw(homes.tools[0]) is not None for _ in range(50)]
    first = next(n for n, hit in enumerate(drawn) if hit)
    reads = run(homes, *[("set_price", {**COVE, "price": 777})] * (first + 1),
                rate=0.5, episode="x")  # fmt: skip
    assert reads[first].status != CallStatus.OK


class Fixed:
    """An emulator model that always says the same, and keeps what it was asked."""

    name = "fixed"

    def __init__(self, result: Any, error: str = "") -> None:
        status = "error" if error else "ok"
        self.reply = EmulatedReply(status=status, result=result, error=error)
        self.asks: list[Ask[Any]] = []

    async def ask(self, ask: Ask[Reply]) -> Reply:
        self.asks.append(ask)
        assert isinstance(self.reply, ask.response)
        return ask.accepted(self.reply)


def asked(model: Fixed) -> str:
    """The last prompt that the model saw."""
    return render(model.asks[-1].template, model.asks[-1].shown)


def test_the_emulator_sees_the_whole_episode_and_the_other_tools(homes: ToolServer) -> None:
    model = Fixed(5)
    run(homes, *[("get_price", {"listing": f"Opal Peak {n}"}) for n in range(9)], emulator=model)
    assert len(model.asks[-1].variables["state"]) == 8
    text = asked(model)
    assert "8. get_price" in text
    assert '"Opal Peak 0"' in text
    assert "Its other tools: set_price, find_agent" in text
    assert "well below 400 characters" in text
    assert "`x-entity`" in text
    assert "Date and time" not in text
    assert "Exist in this service" not in text


def test_the_emulator_is_told_what_exists_and_what_time_it_is(homes: ToolServer) -> None:
    model = Fixed(5)
    setting = Setting(("Amber Cove", "27.8,-97.4"), "Tuesday, 2026-03-10 14:05")
    run(homes, ("get_price", COVE), emulator=model, setting=setting)
    assert '["Amber Cove", "27.8,-97.4"]' in asked(model)
    assert "Date and time: Tuesday, 2026-03-10 14:05" in asked(model)
    assert "fit the one above" in asked(model)


SCHEMA = {"type": "object", "properties": {"items": {"type": "array"}}, "required": ["items"]}


def inferred(homes: ToolServer) -> ToolServer:
    guess = InferredResult(output_schema=SCHEMA, example={"items": ["a first one"]})
    tools = (homes.tools[0].model_copy(update={"output_schema": None, "inferred": guess}),)
    return homes.model_copy(update={"tools": tools})


def test_without_a_publishers_schema_the_inferred_one_and_its_example_count(
    homes: ToolServer,
) -> None:
    guessed = inferred(homes)
    model = Fixed({"items": [1]})
    (done,) = run(guessed, ("get_price", COVE), emulator=model)
    assert done.content == '{"items": [1]}'
    assert "a first one" in asked(model)
    with pytest.raises(ParseError, match=r"schema of the tool's results.*items"):
        run(guessed, ("get_price", COVE), emulator=Fixed({"price": 3}))
    (made_up,) = run(guessed, ("get_price", COVE))
    assert "items" in made_up.value


def test_a_publishers_schema_has_no_example_beside_it(homes: ToolServer) -> None:
    guess = InferredResult(output_schema=SCHEMA, example={"items": ["a first one"]})
    tools = (homes.tools[0].model_copy(update={"inferred": guess}),)
    model = Fixed(5)
    run(homes.model_copy(update={"tools": tools}), ("get_price", COVE), emulator=model)
    assert "a first one" not in asked(model)
    assert '"maximum": 900' in asked(model)


@pytest.mark.parametrize(
    ("result", "error", "problem"),
    [
        ("cheap", "", "not of type 'integer'"),
        (None, "", "not of type 'integer'"),
        (1000, "", "greater than the maximum"),
        (None, "no listing named " + "x" * 600, "one short line"),
    ],
)
def test_a_reply_that_no_service_sends_is_refused_in_the_ask(
    homes: ToolServer, result: Any, error: str, problem: str
) -> None:
    model = Fixed(result, error)
    with pytest.raises(ParseError, match=problem):
        run(homes, ("get_price", COVE), emulator=model)


def test_results_without_a_schema_are_free_but_bounded(toy: ToolServer) -> None:
    emulated = toy.model_copy(update={"execution": Execution.EMULATED})
    note = ("read_note", {"name": "hello"})
    for result in ("a line\nand another", {"rows": [{"id": 1}, {"id": 2}]}, [1, 2], None, 3):
        (done,) = run(emulated, note, emulator=Fixed(result))
        assert done.value == result
    model = Fixed("x")
    run(emulated, note, emulator=model)
    assert "x-entity" not in asked(model)
    with pytest.raises(ParseError, match="has 401 characters; at most 400 fit"):
        run(emulated, note, emulator=Fixed("x" * 401))


def test_a_long_history_keeps_calls_and_says_what_is_left_out() -> None:
    def event(number: int, result: Any) -> dict[str, Any]:
        return {"tool": "t", "arguments": {"n": number}, "status": "ok", "result": result}

    short = [event(n, {"n": n}) for n in range(30)]
    assert shown_state(short) == [{**one, "left_out": 0} for one in short]
    long = [event(n, "y" * 6000) for n in range(10)]
    shown = shown_state(long)
    assert [one["arguments"] for one in shown] == [one["arguments"] for one in long]
    assert [one["left_out"] for one in shown] == [5600] * 7 + [0] * 3
    assert all(len(one["result"]) == 400 for one in shown[:7])
    assert sum(len(one["result"]) for one in shown) <= 24_000
