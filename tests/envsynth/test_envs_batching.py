"""Batches that gather while one runs: sizes, errors, cancellation, and the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import CancelledError

import pytest

from astra.envsynth.batching import Batcher, drawn_in_thread

LATE_S = 20.0


class Gate:
    """Work that stops in its thread until the test lets it go on."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.started = threading.Semaphore(0)
        self.open = threading.Semaphore(0)

    def work(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        self.started.release()
        assert self.open.acquire(timeout=LATE_S)
        if 13 in items:
            raise ArithmeticError("unlucky")
        return [item * item for item in items]

    async def begun(self) -> None:
        assert await asyncio.to_thread(self.started.acquire, timeout=LATE_S)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(LATE_S):
            await test()

    asyncio.run(bounded())


async def queued() -> None:
    """Let the tasks that were just made run until they wait."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_what_comes_while_it_is_busy_is_worked_on_together() -> None:
    async def test() -> None:
        gate = Gate()
        async with Batcher(gate.work, 3) as batcher:
            first = asyncio.create_task(batcher.do(1))
            await gate.begun()
            others = [asyncio.create_task(batcher.do(item)) for item in range(2, 7)]
            await queued()
            assert gate.batches == [[1]]
            for _ in range(3):
                gate.open.release()
            assert await first == 1
            assert await asyncio.gather(*others) == [4, 9, 16, 25, 36]
        assert gate.batches == [[1], [2, 3, 4], [5, 6]]

    run(test)


def test_an_error_reaches_its_own_batch_alone() -> None:
    async def test() -> None:
        gate = Gate()
        async with Batcher(gate.work, 2) as batcher:
            asked = [asyncio.create_task(batcher.do(item)) for item in (1, 13, 2)]
            for _ in range(2):
                gate.open.release()
            found = await asyncio.gather(*asked, return_exceptions=True)
            assert [str(one) for one in found] == ["unlucky", "unlucky", "4"]
            assert isinstance(found[0], ArithmeticError)

    run(test)


def test_a_result_too_few_is_an_error_and_not_a_hang() -> None:
    async def test() -> None:
        async with Batcher(lambda items: list(items)[1:], 2) as batcher:
            with pytest.raises(ValueError, match="0 results for a batch of 1"):
                await batcher.do(1)

    run(test)


@pytest.mark.parametrize("error", [StopIteration(), CancelledError()])
def test_an_error_that_no_future_takes_is_an_error_and_not_a_hang(error: Exception) -> None:
    def work(items: Sequence[int]) -> list[int]:
        raise error

    async def test() -> None:
        async with Batcher(work, 2) as batcher:
            with pytest.raises(RuntimeError, match=f"a batch ended in {type(error).__name__}"):
                await batcher.do(1)

    run(test)


def test_who_no_longer_waits_is_skipped_and_costs_the_others_nothing() -> None:
    async def test() -> None:
        gate = Gate()
        async with Batcher(gate.work, 9) as batcher:
            running = [asyncio.create_task(batcher.do(item)) for item in (1, 2)]
            await gate.begun()
            waiting = [asyncio.create_task(batcher.do(item)) for item in (3, 4)]
            await queued()
            running[0].cancel()
            waiting[0].cancel()
            for _ in range(2):
                gate.open.release()
            assert await running[1] == 4
            assert await waiting[1] == 16
        assert gate.batches == [[1, 2], [4]]

    run(test)


def test_leaving_waits_for_the_running_batch_and_drops_the_rest() -> None:
    async def test() -> None:
        gate = Gate()
        batcher = Batcher(gate.work, 1)
        async with batcher:
            asked = [asyncio.create_task(batcher.do(item)) for item in (1, 2)]
            await gate.begun()
            asyncio.get_running_loop().call_later(0.05, gate.open.release)
        assert await asked[0] == 1
        with pytest.raises(asyncio.CancelledError):
            await asked[1]
        assert gate.batches == [[1]]

    run(test)


def test_batchers_with_one_turn_never_work_at_once() -> None:
    async def test() -> None:
        inside, most = 0, 0
        lock = threading.Lock()

        def work(items: Sequence[int]) -> list[int]:
            nonlocal inside, most
            with lock:
                inside += 1
                most = max(most, inside)
            threading.Event().wait(0.01)
            with lock:
                inside -= 1
            return list(items)

        turn = asyncio.Lock()
        async with Batcher(work, 1, turn) as one, Batcher(work, 1, turn) as other:
            asked = [batcher.do(item) for item in range(5) for batcher in (one, other)]
            assert await asyncio.gather(*asked) == [item for item in range(5) for _ in (1, 2)]
        assert most == 1

    run(test)


def test_items_are_drawn_in_a_thread_and_an_interrupt_waits_for_the_draw() -> None:
    closed: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> Iterator[int]:
        try:
            yield 1
            begun.set()
            assert go_on.wait(LATE_S)
            yield 2
        finally:
            closed.append("closed")

    async def test() -> None:
        seen: list[int] = []

        async def collect() -> None:
            async for item in drawn_in_thread(slow()):
                seen.append(item)

        task = asyncio.create_task(collect())
        assert await asyncio.to_thread(begun.wait, LATE_S)
        task.cancel()
        await queued()
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == [1]

    run(test)
    assert closed == ["closed"]
