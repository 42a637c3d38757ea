"""Episodes that run each at its own pace, over engines that take a turn at any time.

Every episode is a coroutine: its turn is generated, its calls run in threads the moment the
turn is parsed, its next turn is asked for; nobody waits for the others. An episode is admitted
once the engine has key-value memory for what it may grow to, and keeps that reservation to its
end.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from astra.arena.env import execute_batch
from astra.arena.reward import FinalAnswer, RewardMode
from astra.records.message import ToolCall
from astra.records.trajectory import StopReason
from astra.rollout.chat import ChatCodec
from astra.rollout.driver import NOT_OPENED, TOOL_THREADS, again_where_infra
from astra.rollout.engine import Sampling, Turn
from astra.rollout.errors import EngineError, TurnLost
from astra.rollout.live import EpisodeJob, LiveRollout, Rollout, RolloutLimits
from astra.sandbox.protocol import Sandbox

OPENING = 8
"""Sandbox sessions that open side by side."""


class Talk(Protocol):
    """One admitted conversation: all ids so far in, the next turn out.

    Raises TurnLost where that turn is lost, EngineError where no turn can be had any more.
    """

    async def __call__(self, ids: Sequence[int], budget: int, sampling: Sampling) -> Turn: ...


class TurnEngine(Protocol):
    """Generates turns of many conversations, each asked for when it is wanted."""

    weight_version: int
    faults: Counter[str]
    """What went wrong with servers, by kind, since the start; empty where there are none."""

    def sync(self, version: int) -> None:
        """Take over the policy's weights, which are those of ``version``."""
        ...

    def running(self, sampling: Sampling) -> AbstractAsyncContextManager[None]:
        """Resources for the conversations of one batch."""
        ...

    def admitted(self, tokens: int) -> AbstractAsyncContextManager[Talk]:
        """Wait until a conversation of at most ``tokens`` fits, and hold its memory.

        Leaving it raises TurnLost where what was generated cannot be trusted after all, or where
        TimeoutError (the episode's time is over) leaves a turn that the engine is to blame for.
        """
        ...


class Admission:
    """Key-value memory as tokens: held by conversations, given in the order of asking."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.held = 0
        self.peak = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, tokens: int) -> AsyncGenerator[None]:
        """Wait for ``tokens`` and hold them. EngineError if they can never fit."""
        if tokens > self.capacity:
            raise EngineError(
                f"one conversation may need {tokens} tokens of key-value memory, the engine has "
                f"{self.capacity}; lower rl.limits.max_response_tokens or give it more memory"
            )
        if self._waiting or self.held + tokens > self.capacity:
            turn = asyncio.get_running_loop().create_future()
            entry = (tokens, turn)
            self._waiting.append(entry)
            try:
                await turn  # the tokens are held when it resolves
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._release(tokens)
                elif entry in self._waiting:  # not yet passed over, as where all are cancelled
                    self._waiting.remove(entry)
                    self._admit()
                raise
        else:
            self._take(tokens)
        try:
            yield
        finally:
            self._release(tokens)

    def _take(self, tokens: int) -> None:
        self.held += tokens
        self.peak = max(self.peak, self.held)

    def _release(self, tokens: int) -> None:
        self.held -= tokens
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self.held + self._waiting[0][0] <= self.capacity:
            tokens, turn = self._waiting.popleft()
            if not turn.cancelled():
                self._take(tokens)
                turn.set_result(None)


class StreamingDriver:
    """Rolls jobs over a TurnEngine. ``timeout_s`` bounds an admitted episode's wall time.

    An episode that runs out of time keeps what it did and is scored like one that ran out of
    tokens; one that never got its first turn, or whose engine says TurnLost of the turn that it
    waited for, is our own failure, and rolled again.
    """

    def __init__(
        self,
        engine: TurnEngine,
        codec: ChatCodec,
        sandbox: Sandbox,
        limits: RolloutLimits,
        reward: RewardMode = RewardMode.F1,
        final_answer: FinalAnswer = FinalAnswer.SUBTASK,
        timeout_s: float | None = None,
    ) -> None:
        self.engine = engine
        self._codec = codec
        self._sandbox = sandbox
        self._limits = limits
        self._reward = reward
        self._final_answer = final_answer
        self._timeout_s = timeout_s
        self.infra_retries = 0
        self.tool_seconds = 0.0
        self.tool_calls = 0

    @property
    def faults(self) -> Mapping[str, int]:
        return self.engine.faults

    def weights_are(self, version: int) -> None:
        self.engine.sync(version)

    def run(self, jobs: Sequence[EpisodeJob], sampling: Sampling) -> list[Rollout]:
        def roll(positions: list[int], attempt: int) -> list[Rollout]:
            return asyncio.run(self._roll([(at, jobs[at]) for at in positions], attempt, sampling))

        rollouts, retries = again_where_infra(jobs, roll)
        self.infra_retries += retries
        return rollouts

    async def _roll(
        self, jobs: Sequence[tuple[int, EpisodeJob]], attempt: int, sampling: Sampling
    ) -> list[Rollout]:
        # Opening waits where the sandbox is full. In threads of its own it cannot keep the calls
        # and closings waiting that make room.
        with ThreadPoolExecutor(TOOL_THREADS) as pool, ThreadPoolExecutor(OPENING) as doors:
            async with self.engine.running(sampling):
                try:
                    async with asyncio.TaskGroup() as group:
                        tasks = [
                            group.create_task(
                                self._play(job, _seeded(sampling, at, attempt), pool, doors)
                            )
                            for at, job in jobs
                        ]
                except BaseExceptionGroup as errors:
                    # Episodes fail alike where the engine is gone: one of them says it.
                    raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _play(
        self,
        job: EpisodeJob,
        sampling: Sampling,
        pool: ThreadPoolExecutor,
        doors: ThreadPoolExecutor,
    ) -> Rollout:
        env = job.environment(self._sandbox)
        live = LiveRollout(job, env, self._codec, self._limits, self.engine.weight_version)
        if not live.ended:
            loop = asyncio.get_running_loop()
            try:
                async with self.engine.admitted(live.most_tokens) as talk:
                    await loop.run_in_executor(doors, env.open)
                    async with asyncio.timeout(self._timeout_s):
                        await self._converse(live, talk, sampling, pool)
            except TimeoutError:
                if live.ended:
                    pass  # by what its last calls brought
                elif live.rollout.completion_ids:
                    live.episode.abort(StopReason.TIMEOUT)
                else:
                    live.lose(f"no turn in {self._timeout_s} s")
            except TurnLost as error:
                live.lose(f"a turn was lost: {error}")
            except NOT_OPENED as error:
                live.lose(str(error))
            finally:
                await loop.run_in_executor(pool, env.close_now)
        return live.conclude(self._reward, self._final_answer)

    async def _converse(
        self, live: LiveRollout, talk: Talk, sampling: Sampling, pool: ThreadPoolExecutor
    ) -> None:
        rollout, budget, number = live.rollout, live.budget(), 0
        while True:
            ids = [*rollout.prompt_ids, *rollout.completion_ids]
            seeded = Sampling(sampling.temperature, (sampling.seed + 101 * number) % 2**31)
            calls = live.take(await talk(ids, budget, seeded))
            if calls:
                await self._execute(live, calls, pool)
            following = live.next_turn()
            if following is None:
                return
            budget, number = following[1], number + 1

    async def _execute(
        self, live: LiveRollout, calls: Sequence[ToolCall], pool: ThreadPoolExecutor
    ) -> None:
        started = time.monotonic()
        running = pool.submit(execute_batch, [(live.env, call) for call in calls])
        try:
            await asyncio.shield(asyncio.wrap_future(running))
        except asyncio.CancelledError:
            # A session belongs to one thread at a time: it is closed once the calls are over,
            # which their own time limits see to. What they did counts, and so do they.
            await asyncio.wait([asyncio.wrap_future(running)])
            live.answer(running.result())
            raise
        live.answer(running.result())
        self.tool_calls += len(calls)
        self.tool_seconds += time.monotonic() - started


def _seeded(sampling: Sampling, position: int, attempt: int) -> Sampling:
    seed = sampling.seed + 7919 * position + 1_000_003 * attempt
    return Sampling(sampling.temperature, seed % 2**31)
