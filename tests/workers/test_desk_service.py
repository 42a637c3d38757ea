"""The shared desk without a cluster: claims, budget and limits of several workers, one lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from astra.llm.budget import BudgetReached, Tokens
from astra.llm.cache import AnswerCache
from astra.settings import RuntimeConfig
from astra.workers.inputs import WorkersError
from astra.workers.service import DeskService

ENDPOINT = {"base_url": "http://127.0.0.1:9/v1", "api_key_env": "", "requests_per_minute": 60}
TOKENS = Tokens(10, 10)


def service(place: Path, **runtime: Any) -> DeskService:
    config = RuntimeConfig.model_validate({"endpoints": [ENDPOINT], **runtime})
    return DeskService(config, "demo", str(place))


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_key_is_asked_for_by_one_worker_at_a_time(tmp_path: Path) -> None:
    async def run() -> None:
        desk = service(tmp_path)
        assert await desk.claim("a", "a-1", "key") is None
        waiting = asyncio.create_task(desk.claim("b", "b-1", "key"))
        await settled()
        assert not waiting.done()
        assert await desk.commit("a", "key", "m", {"reply": 1}) is None
        await desk.end("a", "a-1")
        assert await waiting == {"reply": 1}
        await desk.close()

    asyncio.run(run())
    assert AnswerCache(tmp_path).get("key") == {"reply": 1}


def test_a_lost_worker_holds_nothing_and_is_not_heard_again(tmp_path: Path) -> None:
    async def run() -> None:
        desk = service(tmp_path)
        await desk.claim("a", "a-1", "key")
        waiting = asyncio.create_task(desk.claim("b", "b-1", "key"))
        await settled()
        await desk.lose("a")
        assert await asyncio.wait_for(waiting, 5) is None
        assert isinstance(await desk.commit("a", "key", "m", {"reply": 2}), WorkersError)
        assert desk._desk.cache.get("key") is None

    asyncio.run(run())


@pytest.mark.parametrize("first", ["claim", "end"])
def test_a_claim_given_up_while_it_waits_is_never_held(tmp_path: Path, first: str) -> None:
    async def run() -> None:
        desk = service(tmp_path)
        await desk.claim("a", "a-1", "key")
        if first == "claim":
            waiting = asyncio.create_task(desk.claim("b", "b-1", "key"))
            await settled()
            await desk.end("b", "b-1")
        else:
            await desk.end("b", "b-1")
            waiting = asyncio.create_task(desk.claim("b", "b-1", "key"))
        await asyncio.wait_for(waiting, 5)
        await desk.end("a", "a-1")
        assert await asyncio.wait_for(desk.claim("c", "c-1", "key"), 5) is None

    asyncio.run(run())


def test_a_cap_counts_all_workers_and_what_a_lost_one_had_in_flight(tmp_path: Path) -> None:
    async def run() -> None:
        desk = service(tmp_path, budget={"stage": {"tokens": 60}})
        assert await desk.admit("a", "a-1", "m", TOKENS) is None
        assert await desk.admit("b", "b-1", "m", TOKENS) is None
        assert await desk.charge("b", "b-1", "m", Tokens(10, 5)) == 0.0
        waiting = asyncio.create_task(desk.admit("b", "b-2", "m", Tokens(30, 0)))
        await settled()
        assert not waiting.done()
        await desk.end("b", "b-1")
        await desk.lose("a")
        assert isinstance(await asyncio.wait_for(waiting, 5), BudgetReached)
        await desk.close()

    asyncio.run(run())
    assert AnswerCache(tmp_path).spent("workspace", "demo").tokens == 35


def test_a_rate_is_shared(tmp_path: Path) -> None:
    async def run() -> list[float]:
        desk = service(tmp_path)
        waits = [await desk.reserve(worker, 0, 1) for worker in ("a", "b", "a")]
        return [float(wait) for wait in waits if not isinstance(wait, Exception)]

    waits = asyncio.run(run())
    assert waits == pytest.approx([0.0, 1.0, 2.0], abs=0.2)
