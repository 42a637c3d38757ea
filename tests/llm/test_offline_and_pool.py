from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from astra.llm.build import Teachers
from astra.llm.pool import AHEAD, flow, map_bounded, together
from astra.llm.protocol import Ask, ModelConfig, ParseError, ProviderError, Teacher, UnfitReply
from astra.settings import RuntimeConfig


class Number(BaseModel):
    value: int


class Other(BaseModel):
    text: str


def draw(variables: Mapping[str, Any], rng: random.Random) -> BaseModel:
    return Number(value=rng.randrange(variables["below"]))


def teacher() -> Teacher:
    config = ModelConfig(backend="offline", model="v1")
    return Teachers(RuntimeConfig()).teacher(config, {"demo/number": draw})


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


def test_a_rule_is_held_to_the_check_of_its_ask() -> None:
    def small(reply: Number) -> None:
        if reply.value >= 5:
            raise ValueError(f"{reply.value} is not below 5")

    asked = Ask("demo/number", {"below": 5}, Number, check=small)
    assert asyncio.run(teacher().ask(asked)).value < 5
    with pytest.raises(UnfitReply, match="is not below 5"):
        asyncio.run(teacher().ask(replace(asked, variables={"below": 10**9})))


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


async def counting(count: int, closed: list[bool]) -> AsyncIterator[int]:
    """Numbers, each after a moment; notes that it was closed."""
    try:
        for n in range(count):
            await asyncio.sleep(0)
            yield n
    finally:
        closed.append(True)


async def doubled(n: int) -> int:
    await asyncio.sleep(0.001 * (n % 3))
    return 2 * n


async def both(n: int) -> list[int]:
    return [await doubled(n), -n]


def alone() -> None:
    """No task but the one that asks is left."""
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_asynchronous_items_are_drawn_by_one_at_a_time_and_flow_in_order() -> None:
    closed: list[bool] = []

    async def run() -> list[int]:
        found = [n async for n in flow(counting(50, closed), both, 8)]
        alone()
        return found

    assert asyncio.run(run()) == [one for n in range(50) for one in (2 * n, -n)]
    assert closed == [True]


def test_a_flow_feeds_the_next_one_without_a_barrier() -> None:
    """The first result comes out while the first flow still has items to draw."""
    drawn: list[int] = []

    def items() -> Any:
        for n in range(1000):
            drawn.append(n)
            yield n

    async def stalls(n: int) -> int:
        await asyncio.sleep(30 if n else 0)
        return n

    async def run() -> None:
        inner = flow(items(), both, 2)
        outer = map_bounded(inner, stalls, 2)
        assert await anext(outer) == 0
        await asyncio.sleep(0.05)  # nobody draws from the first flow by now
        assert len(drawn) < 1000
        await outer.aclose()
        alone()
        with pytest.raises(StopAsyncIteration):
            await anext(inner)  # what fed it is closed as well

    asyncio.run(run())


@pytest.mark.parametrize("asynchronous", [True, False])
def test_closing_early_ends_every_task_and_the_source(asynchronous: bool) -> None:
    closed: list[bool] = []
    cancelled: list[int] = []

    async def work(n: int) -> list[int]:
        try:
            await asyncio.sleep(0 if n < 2 else 30)
        except asyncio.CancelledError:
            cancelled.append(n)
            raise
        return [n]

    async def run() -> None:
        items = counting(100, closed) if asynchronous else range(100)
        results = flow(items, work, 4)
        assert [await anext(results), await anext(results)] == [0, 1]
        await asyncio.sleep(0.02)  # every worker has an item by now
        await results.aclose()
        alone()
        assert closed == [True] * asynchronous

    asyncio.run(run())
    assert sorted(cancelled) == [2, 3, 4, 5]


def test_an_error_of_the_items_is_raised_and_ends_the_work() -> None:
    closed: list[bool] = []

    async def items() -> AsyncIterator[int]:
        async for n in counting(9, closed):
            if n == 3:
                raise OSError("torn")
            yield n

    async def run() -> None:
        with pytest.raises(OSError, match="torn"):
            async for _ in map_bounded(items(), doubled, 2):
                pass
        alone()

    asyncio.run(run())


def test_who_is_cancelled_while_waiting_for_a_result_leaves_no_task() -> None:
    closed: list[bool] = []
    began = asyncio.Event()

    async def work(n: int) -> list[int]:
        began.set()
        await asyncio.sleep(30)
        return [n]

    async def consume() -> None:
        async for _ in flow(counting(9, closed), work, 4):
            pass

    async def run() -> None:
        consumer = asyncio.create_task(consume())
        await began.wait()
        consumer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consumer
        alone()

    asyncio.run(run())
    assert closed == [True]


def test_asks_made_together_keep_their_order_and_fail_as_themselves() -> None:
    cancelled: list[int] = []

    async def late(n: int) -> int:
        try:
            await asyncio.sleep(0.02 * (3 - n) if n else 30)
        except asyncio.CancelledError:
            cancelled.append(n)
            raise
        return n

    async def broken() -> int:
        raise ProviderError("down")

    async def run() -> None:
        assert await together(late(1), late(2), late(3)) == [1, 2, 3]
        assert await together() == []
        with pytest.raises(ProviderError, match="down"):
            await together(late(0), broken())
        alone()

    asyncio.run(run())
    assert cancelled == [0]


def test_a_rule_neither_sees_limits_nor_draws_by_them() -> None:
    def ask(limits: dict[str, int], names: tuple[str, ...] = ()) -> int:
        wanted = Ask("demo/number", {"below": 10**9}, Number, limits=limits, names=names)
        return asyncio.run(teacher().ask(wanted)).value

    assert ask({"below": 1}) == ask({"max_words": 9}) == ask({}) == ask({}, ("Ada Berg",))
    assert Ask("demo/number", {"below": 9}, Number, limits={"max_words": 7}).shown == {
        "below": 9, "max_words": 7,
    }  # fmt: skip
    assert Ask("demo/number", {}, Number, names=("Ada Berg",)).shown == {"names": ("Ada Berg",)}
