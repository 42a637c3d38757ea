"""Episodes over an engine that takes a turn at any time, here a scripted one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from episodes import ARENA, LIMITS, expert, solved

from astra.arena.env import ArenaError
from astra.records.message import CallStatus, ToolCall, ToolResult
from astra.records.trajectory import StopReason
from astra.rollout import streaming
from astra.rollout.chat import ChatCodec, PolicyConfig, load_codec
from astra.rollout.engine import Sampling, Turn
from astra.rollout.errors import TurnLost
from astra.rollout.live import EpisodeJob
from astra.rollout.streaming import Admission, StreamingDriver
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import SandboxLoadError, SandboxUnavailable, Session


@pytest.fixture(scope="module")
def codec() -> ChatCodec:
    return load_codec(PolicyConfig.saved("policies/tiny", "float32"))


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LocalSandbox]:
    with LocalSandbox() as one:
        yield one


def test_admission_is_in_order_and_survives_cancelling() -> None:
    async def scenario() -> list[str]:
        seen: list[str] = []
        admission = Admission(10)

        async def one(name: str, tokens: int) -> None:
            async with admission.hold(tokens):
                seen.append(name)
                await asyncio.sleep(0.01)

        first = asyncio.create_task(one("a", 6))
        await asyncio.sleep(0)
        large = asyncio.create_task(one("large", 9))
        small = asyncio.create_task(one("small", 1))
        await asyncio.sleep(0)
        assert seen == ["a"], "the small one waits behind the large one: nobody starves"
        large.cancel()
        await asyncio.gather(first, small)
        assert admission.held == 0
        return seen

    assert asyncio.run(scenario()) == ["a", "small"]


def test_an_interrupt_while_episodes_wait_stays_an_interrupt() -> None:
    """All are cancelled at once: who waits may be passed over before it is its turn to leave."""

    async def scenario() -> int:
        admission = Admission(10)

        async def one() -> None:
            async with admission.hold(6):
                await asyncio.sleep(30)

        episodes = [asyncio.create_task(one()) for _ in range(3)]
        await asyncio.sleep(0)
        for episode in episodes:
            episode.cancel()
        for error in await asyncio.gather(*episodes, return_exceptions=True):
            assert isinstance(error, asyncio.CancelledError)
        return admission.held

    assert asyncio.run(scenario()) == 0


class ScriptedTurns:
    """A TurnEngine in the process: ``reply(ids)`` may wait, or raise."""

    def __init__(self, reply: Callable[[Sequence[int]], Any]) -> None:
        self.weight_version = 0
        self.faults: Counter[str] = Counter()
        self.reply = reply

    def sync(self, version: int) -> None:
        self.weight_version = version

    @asynccontextmanager
    async def running(self, sampling: Sampling) -> AsyncGenerator[None]:
        yield

    @asynccontextmanager
    async def admitted(self, tokens: int) -> AsyncGenerator[Any]:
        async def talk(ids: Sequence[int], budget: int, sampling: Sampling) -> Turn:
            written = self.reply(ids)
            if asyncio.iscoroutine(written):
                written = await written
            return Turn(0, written, [-1.0] * len(written), "eos")

        yield talk


def test_a_slow_tool_holds_up_nobody_else(
    codec: ChatCodec, sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call returns only once the other episode has finished its last turn."""
    reply, finished = expert(codec), threading.Event()
    executed = streaming.execute_batch
    order: list[str] = []

    def tool(pairs: Sequence[tuple[Any, ToolCall]]) -> list[ToolResult]:
        if not order:
            order.append("slow call starts")
            assert finished.wait(10), "the others waited for a tool that is not theirs"
            order.append("slow call ends")
        return executed(pairs)

    def turn(ids: Sequence[int]) -> list[int]:
        written = reply(ids)
        if "<answer>" in codec.decode(written):
            order.append("answer")
            finished.set()
        return written

    monkeypatch.setattr(streaming, "execute_batch", tool)
    driver = StreamingDriver(ScriptedTurns(turn), codec, sandbox, LIMITS)
    assert solved(driver.run([EpisodeJob(ARENA)] * 2, Sampling())) == [True, True]
    assert order == ["slow call starts", "answer", "slow call ends", "answer"]


def test_running_out_of_time_keeps_what_was_done(codec: ChatCodec, sandbox: LocalSandbox) -> None:
    reply = expert(codec)

    async def slow_second(ids: Sequence[int]) -> list[int]:
        written = reply(ids)
        if sum(token == codec.eos_id for token in ids) > 2:
            await asyncio.sleep(30)
        return written

    driver = StreamingDriver(ScriptedTurns(slow_second), codec, sandbox, LIMITS, timeout_s=0.5)
    (rollout,) = driver.run([EpisodeJob(ARENA)], Sampling())
    assert rollout.stop_reason == StopReason.TIMEOUT
    assert rollout.score is not None
    assert 0 < rollout.score.reward < 1
    assert rollout.mask[-1] == 0, "the result it got is there, the turn that never came is not"


def test_calls_that_run_out_of_time_count(
    codec: ChatCodec, sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they did to the arena stands, and so they are charged."""
    executed = streaming.execute_batch

    def slow(pairs: Sequence[tuple[Any, ToolCall]]) -> list[ToolResult]:
        time.sleep(1)
        return executed(pairs)

    monkeypatch.setattr(streaming, "execute_batch", slow)
    driver = StreamingDriver(ScriptedTurns(expert(codec)), codec, sandbox, LIMITS, timeout_s=0.5)
    (rollout,) = driver.run([EpisodeJob(ARENA)], Sampling())
    assert rollout.stop_reason == StopReason.TIMEOUT
    assert [one.call.name for one in rollout.calls] == ["find_manager"]
    assert rollout.score is not None
    assert rollout.score.solved == 1


def test_calls_that_fail_for_us_out_of_time_are_not_scored(
    codec: ChatCodec, sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(pairs: Sequence[tuple[Any, ToolCall]]) -> list[ToolResult]:
        time.sleep(1)
        return [ToolResult(status=CallStatus.INFRA, content="gone") for _ in pairs]

    monkeypatch.setattr(streaming, "execute_batch", slow)
    driver = StreamingDriver(ScriptedTurns(expert(codec)), codec, sandbox, LIMITS, timeout_s=0.5)
    (rollout,) = driver.run([EpisodeJob(ARENA)], Sampling())
    assert (rollout.stop_reason, rollout.score) == (StopReason.INFRA, None)


def test_an_episode_without_any_turn_is_ours_to_answer_for(
    codec: ChatCodec, sandbox: LocalSandbox
) -> None:
    reply, asked = expert(codec), []

    async def late(ids: Sequence[int]) -> list[int]:
        asked.append(1)
        if len(asked) == 1:
            await asyncio.sleep(30)
        return reply(ids)

    driver = StreamingDriver(ScriptedTurns(late), codec, sandbox, LIMITS, timeout_s=0.5)
    assert solved(driver.run([EpisodeJob(ARENA)], Sampling())) == [True]
    assert driver.infra_retries == 1

    def never(ids: Sequence[int]) -> list[int]:
        raise TurnLost("gone")

    driver = StreamingDriver(ScriptedTurns(never), codec, sandbox, LIMITS)
    (rollout,) = driver.run([EpisodeJob(ARENA)], Sampling())
    assert rollout.stop_reason == StopReason.INFRA
    assert rollout.score is None, "never scored 0"


class Crowded:
    """A sandbox whose first openings fail as a busy machine makes them fail."""

    def __init__(self, inner: LocalSandbox, failures: list[Exception]) -> None:
        self._inner, self.failures = inner, failures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def session(self, sources: Mapping[str, str]) -> Session:
        if self.failures:
            raise self.failures.pop()
        return self._inner.session(sources)


def test_an_unlucky_opening_is_rolled_again_and_code_at_fault_ends_the_run(
    codec: ChatCodec, sandbox: LocalSandbox
) -> None:
    late, full = SandboxLoadError("timeout: loading"), SandboxUnavailable("no room in time")
    crowded: Any = Crowded(sandbox, [late, full])
    driver = StreamingDriver(ScriptedTurns(expert(codec)), codec, crowded, LIMITS)
    assert solved(driver.run([EpisodeJob(ARENA)] * 2, Sampling())) == [True, True]
    assert driver.infra_retries == 2

    crowded.failures = [full] * 9
    (rollout,) = driver.run([EpisodeJob(ARENA)], Sampling())
    assert (rollout.score, rollout.problem) == (None, "no room in time")

    crowded.failures = [SandboxLoadError("exception: ZeroDivisionError")]
    with pytest.raises(ArenaError, match="does not load: exception: ZeroDivisionError"):
        driver.run([EpisodeJob(ARENA)], Sampling())
