"""Served time: only requests in flight use up a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from pydantic import BaseModel

from astra.llm.build import Teachers
from astra.llm.protocol import Ask, ModelConfig, Teacher
from astra.llm.served import ServedLimit, served, uncounted
from chat_server import Answer, ChatServer, runtime


async def work(seconds: float) -> None:
    with served():
        await asyncio.sleep(seconds)


def within(limit_s: float, what: Callable[[], Awaitable[object]]) -> None:
    async def bounded() -> None:
        async with ServedLimit(limit_s):
            await what()

    asyncio.run(bounded())


def test_waits_do_not_count() -> None:
    async def waiting() -> None:
        await asyncio.sleep(0.2)
        await work(0.01)
        await asyncio.sleep(0.2)

    within(0.15, waiting)


def test_work_counts_over_all_requests() -> None:
    async def working() -> None:
        for _ in range(20):
            await work(0.02)

    with pytest.raises(TimeoutError, match=r"within 0.1 s of served time"):
        within(0.1, working)


def test_work_that_overlaps_counts_once_and_also_counts_in_tasks() -> None:
    async def abreast() -> None:
        await asyncio.gather(*(work(0.1) for _ in range(8)))

    within(0.4, abreast)

    async def endless() -> None:
        await asyncio.gather(asyncio.sleep(30), work(30))

    with pytest.raises(TimeoutError):
        within(0.05, endless)


def test_a_task_that_outlives_the_limit_does_no_harm() -> None:
    async def outliving() -> None:
        async with ServedLimit(5):
            task = asyncio.create_task(work(0.02))
            await asyncio.sleep(0)
        await task
        await work(0.01)

    asyncio.run(outliving())


def test_without_a_limit_nothing_is_counted() -> None:
    asyncio.run(work(0.01))


def test_what_is_done_for_others_too_is_not_counted() -> None:
    async def helping() -> None:
        with uncounted():
            await asyncio.gather(work(0.3), work(0.3))
        await work(0.01)

    within(0.15, helping)

    async def helping_and_slow() -> None:
        with uncounted():
            await work(0.01)
        await work(3)

    with pytest.raises(TimeoutError):
        within(0.15, helping_and_slow)


def test_an_interrupt_and_an_error_pass_through() -> None:
    async def failing() -> None:
        await work(0.01)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        within(1, failing)

    async def interrupted() -> None:
        task = asyncio.create_task(bounded())
        await asyncio.sleep(0.02)
        task.cancel()
        await task

    async def bounded() -> None:
        async with ServedLimit(5):
            await work(30)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(interrupted())


class Word(BaseModel):
    word: str


def asked(*answers: Answer, limit_s: float) -> str:
    """The reply to one ask of a server that answers like this, within the limit."""

    async def run(teacher: Teacher) -> str:
        async with ServedLimit(limit_s):
            return (await teacher.ask(Ask("demo/say", {"word": "tree"}, Word))).word

    model = ModelConfig(backend="openai", model="m", max_tokens=10)
    with ChatServer(*answers) as server, Teachers(runtime(server.url), "demo") as teachers:
        return asyncio.run(run(teachers.teacher(model, {})))


GOOD = '{"word": "tree"}'


def test_a_rest_that_an_endpoint_wants_does_not_count() -> None:
    busy = Answer(status=429, headers={"Retry-After": "1"})
    assert asked(busy, Answer(GOOD), limit_s=0.7) == "tree"


def test_the_time_that_an_endpoint_takes_does() -> None:
    with pytest.raises(TimeoutError, match="served time"):
        asked(Answer(GOOD, delay_s=3), limit_s=0.3)
