"""Many episodes in waves: an engine generates turns, the sandbox answers calls, tokens add up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import NamedTuple, Protocol

from astra.arena.env import (
    ArenaEnv,
    ArenaError,
    ArenaLoadTimeout,
    execute_batch,
    open_sessions,
)
from astra.arena.reward import FinalAnswer, RewardMode
from astra.records.message import ToolCall, ToolResult
from astra.records.trajectory import StopReason
from astra.rollout.chat import ChatCodec
from astra.rollout.engine import Engine, Sampling
from astra.rollout.live import EpisodeJob, LiveRollout, Rollout, RolloutLimits
from astra.sandbox.protocol import Sandbox, SandboxUnavailable

INFRA_ATTEMPTS = 3
"""How often an episode is rolled where our own machinery fails it."""
TOOL_THREADS = 32
NOT_OPENED = (SandboxUnavailable, ArenaLoadTimeout)
"""What a busy machine may be to blame for when a session is opened: the episode is rolled again."""


class EpisodeSetting(NamedTuple):
    """What a driver plays every episode with, in the order in which drivers take it."""

    codec: ChatCodec
    sandbox: Sandbox
    limits: RolloutLimits
    reward: RewardMode
    final_answer: FinalAnswer


class Driver(Protocol):
    """What rolls episodes, whichever engine generates."""

    infra_retries: int
    """Episodes that were rolled again because our own machinery failed."""
    tool_seconds: float
    """Time that calls took, summed; ``tool_calls`` of them were made."""
    tool_calls: int

    @property
    def faults(self) -> Mapping[str, int]:
        """What this process saw go wrong with rollout servers, by kind, since it started."""
        ...

    def weights_are(self, version: int) -> None:
        """The policy was updated; what is rolled from now on is its ``version``."""
        ...

    def run(self, jobs: Sequence[EpisodeJob], sampling: Sampling) -> list[Rollout]:
        """One rollout per job, in order. Raises ArenaError if an arena's code does not load.

        Where the sandbox has no room in time, or code loads too slowly, the episode is rolled
        again like any other that our machinery failed.
        """
        ...


def again_where_infra(
    jobs: Sequence[EpisodeJob], roll: Callable[[list[int], int], list[Rollout]]
) -> tuple[list[Rollout], int]:
    """``roll(positions, attempt)`` until no rollout failed for reasons of our own, bounded.

    Returns one rollout per job and how many were rolled anew. What never worked keeps
    StopReason.INFRA and no score.
    """
    results: dict[int, Rollout] = {}
    waiting, retries = list(range(len(jobs))), 0
    for attempt in range(INFRA_ATTEMPTS):
        retries += len(waiting) if attempt else 0
        results.update(zip(waiting, roll(waiting, attempt), strict=True))
        waiting = [at for at in waiting if results[at].stop_reason == StopReason.INFRA]
        if not waiting:
            break
    return [results[at] for at in range(len(jobs))], retries


class RolloutDriver:
    """Rolls jobs in waves of ``engine.max_rows``; jobs that our machinery failed, again.

    ``overlap`` off: the calls of the turns that ended together run together, and the engine
    waits for them; the same seed gives the same rollouts. On: calls run in threads while other
    rows generate, which wins where tools are slow; when a row resumes then depends on the clock.
    """

    def __init__(
        self,
        engine: Engine,
        codec: ChatCodec,
        sandbox: Sandbox,
        limits: RolloutLimits,
        reward: RewardMode = RewardMode.F1,
        final_answer: FinalAnswer = FinalAnswer.SUBTASK,
        overlap: bool = False,
    ) -> None:
        self.engine = engine
        self._codec = codec
        self._sandbox = sandbox
        self._limits = limits
        self._reward = reward
        self._final_answer = final_answer
        self._overlap = overlap
        self.infra_retries = 0
        self.tool_seconds = 0.0
        self.tool_calls = 0

    @property
    def faults(self) -> Mapping[str, int]:
        return {}  # there are no servers

    def weights_are(self, version: int) -> None:
        """The engine generates with the trainer's own model: only the stamp changes."""
        self.engine.weight_version = version

    def run(self, jobs: Sequence[EpisodeJob], sampling: Sampling) -> list[Rollout]:
        def roll(positions: list[int], attempt: int) -> list[Rollout]:
            rolled: list[Rollout] = []
            for start in range(0, len(positions), self.engine.max_rows):
                wave = positions[start : start + self.engine.max_rows]
                seed = sampling.seed + 1_000_003 * attempt + 7919 * start
                chosen = [jobs[at] for at in wave]
                rolled += self._wave(chosen, Sampling(sampling.temperature, seed % 2**63))
            return rolled

        rollouts, retries = again_where_infra(jobs, roll)
        self.infra_retries += retries
        return rollouts

    def _wave(self, jobs: Sequence[EpisodeJob], sampling: Sampling) -> list[Rollout]:
        envs = [job.environment(self._sandbox) for job in jobs]
        version = self.engine.weight_version
        live = [
            LiveRollout(job, env, self._codec, self._limits, version)
            for job, env in zip(jobs, envs, strict=True)
        ]
        try:
            self._open(envs, live)
            rows = [rollout for rollout in live if not rollout.ended]
            if rows:
                prompts = [row.rollout.prompt_ids for row in rows]
                self.engine.start(prompts, [row.budget() for row in rows], sampling)
                (self._overlapped if self._overlap else self._in_turn)(rows)
        finally:
            for env in envs:
                env.close_now()
        return [rollout.conclude(self._reward, self._final_answer) for rollout in live]

    def _open(self, envs: Sequence[ArenaEnv], live: Sequence[LiveRollout]) -> None:
        """Start the sessions; what a busy machine left unopened is lost, to be rolled again.

        Raises ArenaError where an arena's code itself is at fault.
        """
        try:
            failures: Sequence[ArenaError | SandboxUnavailable | None] = open_sessions(
                envs, self._sandbox
            )
        except SandboxUnavailable as error:
            failures = [error] * len(envs)
        for one, failure in zip(live, failures, strict=True):
            if isinstance(failure, NOT_OPENED):
                if not one.ended:  # a prompt that is too long needs no session
                    one.lose(str(failure))
            elif failure is not None:
                raise failure

    def _in_turn(self, rows: list[LiveRollout]) -> None:
        while turns := self.engine.poll():
            offered: list[tuple[int, tuple[ToolCall, ...]]] = []
            for turn in turns:
                if calls := rows[turn.row].take(turn):
                    offered.append((turn.row, calls))
                else:
                    self._continue(turn.row, rows[turn.row])
            pairs = [(rows[row].env, call) for row, calls in offered for call in calls]
            started = time.monotonic()
            results = iter(execute_batch(pairs) if pairs else ())
            self._took(len(pairs), time.monotonic() - started)
            for row, calls in offered:
                rows[row].answer([next(results) for _ in calls])
                self._continue(row, rows[row])

    def _overlapped(self, rows: list[LiveRollout]) -> None:
        running: dict[Future[list[ToolResult]], tuple[int, float, int]] = {}
        with ThreadPoolExecutor(TOOL_THREADS) as pool:
            while (turns := self.engine.poll()) or running:
                for turn in turns:
                    live = rows[turn.row]
                    if calls := live.take(turn):
                        pairs = [(live.env, call) for call in calls]
                        future = pool.submit(execute_batch, pairs)
                        running[future] = turn.row, time.monotonic(), len(calls)
                    else:
                        self._continue(turn.row, live)
                # With rows left to generate only what is there is taken; else the next is awaited.
                done, _ = wait(running, 0 if turns else None, FIRST_COMPLETED)
                for future in done:
                    row, started, calls = running.pop(future)
                    self._took(calls, time.monotonic() - started)
                    rows[row].answer(future.result())
                    self._continue(row, rows[row])

    def _took(self, calls: int, seconds: float) -> None:
        self.tool_calls += calls
        self.tool_seconds += seconds

    def _continue(self, row: int, live: LiveRollout) -> None:
        following = live.next_turn()
        if following is None:
            self.engine.finish(row)
        else:
            self.engine.resume(row, *following)
