from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from astra.llm.build import build_teacher
from astra.llm.pool import AHEAD, map_bounded
from astra.llm.protocol import Ask, ModelConfig, ParseError, ProviderError, Teacher
from astra.settings import RuntimeConfig


class Number(BaseModel):
    value: int


class Other(BaseModel):
    text: str


def draw(variables: Mapping[str, Any], rng: random.Random) -> BaseModel:
    return Number(value=rng.randrange(variables["below"]))


def teacher() -> Teacher:
    config = ModelConfig(backend="offline", model="v1")
    return build_teacher(config, RuntimeConfig(), {"demo/number": draw})


def test_the_offline_teacher_is_a_function_of_the_ask() -> None:
    def ask(below: int = 10**9, sample: int = 0) -> int:
        reply = asyncio.run(teacher().ask(Ask("demo/number", {"below": below}, Number, sample)))
        return reply.value

    assert ask() == ask()
    assert len({ask(), ask(sample=1), ask(below=10**9 + 1)}) == 3
    assert teacher().name == "offline:v1"


def test_a_missing_rule_and_a_wrong_type_are_errors_not_replies() -> None:
    with pytest.raises(ProviderError, match="no rule for 'demo/none'"):
        asyncio.run(teacher().ask(Ask("demo/none", {}, Number)))
    with pytest.raises(ParseError, match="Number"):
        asyncio.run(teacher().ask(Ask("demo/number", {"below": 3}, Other)))


def test_results_come_in_order_within_the_bound_and_items_are_drawn_lazily() -> None:
    drawn = in_flight = most = 0

    def items() -> Any:
        nonlocal drawn
        for n in range(200):
            drawn += 1
            yield n

    async def work(n: int) -> int:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await asyncio.sleep(0.001 * (n % 3))
        in_flight -= 1
        return n

    async def run() -> list[int]:
        results: list[int] = []
        async for result in map_bounded(items(), work, 4):
            results.append(result)
            assert drawn <= len(results) + 4 * AHEAD
        return results

    assert asyncio.run(run()) == list(range(200))
    assert most == 4


def test_one_slow_item_does_not_idle_the_others() -> None:
    done: list[int] = []
    rest = asyncio.Event()

    async def work(n: int) -> int:
        if n == 0:
            await rest.wait()
        done.append(n)
        if len(done) == 7:
            rest.set()
        return n

    async def run() -> list[int]:
        return [n async for n in map_bounded(range(8), work, 2)]

    assert asyncio.run(asyncio.wait_for(run(), 5)) == list(range(8))


def test_the_first_error_cancels_what_is_in_flight() -> None:
    cancelled: list[int] = []

    async def work(n: int) -> int:
        if n == 1:
            raise ValueError("boom")
        try:
            await asyncio.sleep(0 if n == 0 else 30)
        except asyncio.CancelledError:
            cancelled.append(n)
            raise
        return n

    async def run() -> None:
        async for _ in map_bounded(range(10), work, 4):
            pass

    with pytest.raises(ValueError, match="boom"):
        asyncio.run(run())
    assert {2, 3} <= set(cancelled)
    assert len(cancelled) <= 4


def test_a_rule_neither_sees_limits_nor_draws_by_them() -> None:
    def ask(limits: dict[str, int], names: tuple[str, ...] = ()) -> int:
        wanted = Ask("demo/number", {"below": 10**9}, Number, limits=limits, names=names)
        return asyncio.run(teacher().ask(wanted)).value

    assert ask({"below": 1}) == ask({"max_words": 9}) == ask({}) == ask({}, ("Ada Berg",))
    assert Ask("demo/number", {"below": 9}, Number, limits={"max_words": 7}).shown == {
        "below": 9, "max_words": 7,
    }  # fmt: skip
    assert Ask("demo/number", {}, Number, names=("Ada Berg",)).shown == {"names": ("Ada Berg",)}
