from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import Ask, ModelConfig, ParseError, Reply
from astra.prompting import render
from astra.records.message import CallStatus, ToolCall, ToolResult
from astra.records.tool import ToolServer
from astra.text.names import Pool, pool_of
from astra.trajectories.emulated import EmulatedEnv, EmulatedReply
from astra.trajectories.failures import FailureInjector, looks_transient
from astra.trajectories.offline.handlers import HANDLERS

OFFLINE = OfflineTeacher(ModelConfig(backend="offline", model="1"), HANDLERS)


def run(
    homes: ToolServer,
    *calls: tuple[str, dict[str, Any]],
    rate: float = 0.0,
    episode: str = "e",
    emulator: Any = OFFLINE,
) -> list[ToolResult]:
    async def work() -> list[ToolResult]:
        env = EmulatedEnv(homes, homes.tools, emulator, FailureInjector(rate, episode), 0)
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
    assert run(homes, *calls, rate=0.2) == results
    assert run(homes, *calls, rate=0.2, episode="f") != results
    injector = FailureInjector(0.5, "x")
    drawn = [injector.draw("t") is not None for _ in range(50)]
    first = next(n for n, hit in enumerate(drawn) if hit)
    reads = run(homes, *[("set_price", {**COVE, "price": 777})] * (first + 1),
                rate=0.5, episode="x")  # fmt: skip
    assert reads[first].status != CallStatus.OK


class Fixed:
    """An emulator model that always says the same, and keeps what it was asked."""

    name = "fixed"

    def __init__(self, result: Any) -> None:
        self.reply = EmulatedReply(status="ok", result=result)
        self.asks: list[Ask[Any]] = []

    async def ask(self, ask: Ask[Reply]) -> Reply:
        self.asks.append(ask)
        assert isinstance(self.reply, ask.response)
        return self.reply


def test_a_reply_against_the_output_schema_is_refused(homes: ToolServer) -> None:
    with pytest.raises(ParseError, match="output schema"):
        run(homes, ("get_price", COVE), emulator=Fixed("cheap"))


def test_the_emulator_sees_the_whole_episode(homes: ToolServer) -> None:
    model = Fixed(5)
    run(homes, *[("get_price", {"listing": f"Opal Peak {n}"}) for n in range(9)], emulator=model)
    assert len(model.asks[-1].variables["state"]) == 8
    text = render(model.asks[-1].template, model.asks[-1].shown)
    assert "8. get_price" in text
    assert '"Opal Peak 0"' in text
