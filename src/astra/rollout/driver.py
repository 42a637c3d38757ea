"""Many episodes at once: an engine writes turns, the sandbox answers calls, tokens add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from astra.agent.episode import Episode, EpisodeLimits
from astra.agent.toolcalls import parse_assistant
from astra.arena.env import ArenaEnv, execute_batch, open_envs
from astra.arena.prompt import initial_messages
from astra.arena.reward import EpisodeScore, FinalAnswer, RewardMode, score_episode
from astra.records.environment import Arena, ArenaTool
from astra.records.message import CallStatus, ExecutedCall, Message, ToolCall
from astra.records.state import Tables
from astra.records.trajectory import StopReason
from astra.rollout.chat import ChatCodec
from astra.rollout.engine import Engine, Sampling, Turn
from astra.sandbox.protocol import Sandbox
from astra.settings import StageConfig

INFRA_ATTEMPTS = 3


class RolloutLimits(StageConfig):
    """ASTRA section 5.3: 32 turns, prompts of 25,600 and responses of 49,152 tokens."""

    max_turns: int = 32
    max_calls: int = 64
    max_parallel_calls: int = 16
    max_result_chars: int = 8192
    max_turn_tokens: int = 4096
    """One assistant turn; not from the paper."""
    max_prompt_tokens: int = 25600
    max_response_tokens: int = 49152
    """Everything after the prompt: what the model writes and what its tools return."""

    def episode(self) -> EpisodeLimits:
        return EpisodeLimits(
            max_turns=self.max_turns,
            max_calls=self.max_calls,
            max_parallel_calls=self.max_parallel_calls,
            max_result_chars=self.max_result_chars,
        )


@dataclass(frozen=True)
class Job:
    """One episode to roll: an arena and the irrelevant tools it offers this time."""

    arena: Arena
    extra_tools: tuple[ArenaTool, ...] = ()


@dataclass
class Rollout:
    """One episode as tokens. ``completion_ids``, ``mask`` and ``logprobs`` have one length.

    ``mask`` is 1 on sampled ids (EOS included) and 0 on what the environment said, where
    ``logprobs`` is 0. ``score`` is None when our own machinery failed: such an episode says
    nothing about the policy.
    """

    arena: Arena
    prompt_ids: list[int]
    weight_version: int
    completion_ids: list[int] = field(default_factory=list[int])
    mask: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    messages: tuple[Message, ...] = ()
    calls: tuple[ExecutedCall, ...] = ()
    stop_reason: StopReason | None = None
    score: EpisodeScore | None = None
    end_state: Tables | None = None
    """What stateful tools left behind; None where no tool is stateful."""

    def append(self, ids: Sequence[int], logprobs: Sequence[float] | None) -> None:
        """Sampled ids come with log-probabilities; the environment's come with None."""
        self.completion_ids += ids
        self.mask += [int(logprobs is not None)] * len(ids)
        self.logprobs += logprobs if logprobs is not None else [0.0] * len(ids)


@dataclass
class _Live:
    rollout: Rollout
    episode: Episode
    env: ArenaEnv


class RolloutDriver:
    """Rolls jobs in waves of ``engine.max_rows``; jobs that our machinery failed, again."""

    def __init__(
        self,
        engine: Engine,
        codec: ChatCodec,
        sandbox: Sandbox,
        limits: RolloutLimits,
        reward: RewardMode = RewardMode.F1,
        final_answer: FinalAnswer = FinalAnswer.SUBTASK,
    ) -> None:
        self.engine = engine
        self._codec = codec
        self._sandbox = sandbox
        self._limits = limits
        self._reward = reward
        self._final_answer = final_answer
        self.infra_retries = 0

    def run(self, jobs: Sequence[Job], sampling: Sampling) -> list[Rollout]:
        """One rollout per job, in order. Raises ArenaError if an arena's code does not load."""
        results: list[Rollout | None] = [None] * len(jobs)
        waiting = list(range(len(jobs)))
        for attempt in range(INFRA_ATTEMPTS):
            for start in range(0, len(waiting), self.engine.max_rows):
                wave = waiting[start : start + self.engine.max_rows]
                seed = sampling.seed + 1_000_003 * attempt + 7919 * start
                chosen = [jobs[index] for index in wave]
                rolled = self._wave(chosen, Sampling(sampling.temperature, seed % 2**63))
                for index, rollout in zip(wave, rolled, strict=True):
                    results[index] = rollout
            waiting = [
                i for i in waiting if (r := results[i]) and r.stop_reason == StopReason.INFRA
            ]
            if not waiting:
                break
            self.infra_retries += len(waiting)
        return [rollout for rollout in results if rollout is not None]

    def _wave(self, jobs: Sequence[Job], sampling: Sampling) -> list[Rollout]:
        envs = open_envs([(job.arena, job.extra_tools) for job in jobs], self._sandbox)
        try:
            live = [self._begin(job, env) for job, env in zip(jobs, envs, strict=True)]
            self._generate(live, sampling)
        finally:
            for env in envs:
                env.close_now()
        for one in live:
            self._conclude(one)
        return [one.rollout for one in live]

    def _begin(self, job: Job, env: ArenaEnv) -> _Live:
        messages = initial_messages(job.arena)
        prompt = self._codec.encode_prompt(messages, env.tools)
        rollout = Rollout(job.arena, prompt, self.engine.weight_version)
        return _Live(rollout, Episode(messages, env.tools, self._limits.episode()), env)

    def _generate(self, live: list[_Live], sampling: Sampling) -> None:
        longest = self._limits.max_prompt_tokens
        rows = [one for one in live if len(one.rollout.prompt_ids) <= longest]
        for one in live:
            if len(one.rollout.prompt_ids) > longest:
                one.episode.abort(StopReason.MAX_TOKENS)
        if not rows:
            return
        budgets = [self._budget(one.rollout) for one in rows]
        self.engine.start([one.rollout.prompt_ids for one in rows], budgets, sampling)
        while turns := self.engine.poll():
            self._answer(rows, turns)

    def _answer(self, rows: list[_Live], turns: Sequence[Turn]) -> None:
        """Take turns, run all their calls together, and resume the rows that go on."""
        offered: list[tuple[int, tuple[ToolCall, ...]]] = []
        for turn in turns:
            one = rows[turn.row]
            one.rollout.append(turn.ids, turn.logprobs)
            calls = len(one.episode.calls)
            before = len(one.episode.messages)
            if turn.finish == "length":
                one.episode.messages.append(parse_assistant(self._codec.decode(turn.ids), calls))
                one.episode.abort(StopReason.MAX_TOKENS)
                self.engine.finish(turn.row)
                continue
            wanted = one.episode.offer(parse_assistant(self._codec.decode(turn.ids), calls))
            if wanted:
                offered.append((turn.row, wanted))
            else:
                self._continue(turn.row, one, one.episode.messages[before + 1 :])
        pairs = [(rows[row].env, call) for row, calls in offered for call in calls]
        results = iter(execute_batch(pairs) if pairs else ())
        for row, calls in offered:
            one = rows[row]
            answers = [next(results) for _ in calls]
            tool_messages = one.episode.observe(answers)
            if any(answer.status == CallStatus.INFRA for answer in answers):
                one.episode.stop_reason = StopReason.INFRA
            self._continue(row, one, tool_messages)

    def _continue(self, row: int, one: _Live, tool_messages: Sequence[Message]) -> None:
        if one.episode.stop_reason is None:
            suffix = self._codec.suffix_ids(tool_messages)
            room = self._budget(one.rollout, len(suffix))
            if room > 0:
                one.rollout.append(suffix, None)
                self.engine.resume(row, suffix, room)
                return
            one.episode.abort(StopReason.MAX_TOKENS)
        self.engine.finish(row)

    def _budget(self, rollout: Rollout, suffix: int = 0) -> int:
        left = self._limits.max_response_tokens - len(rollout.completion_ids) - suffix
        return min(self._limits.max_turn_tokens, left)

    def _conclude(self, one: _Live) -> None:
        rollout, episode = one.rollout, one.episode
        rollout.messages = tuple(episode.messages)
        rollout.calls = tuple(episode.calls)
        rollout.stop_reason = episode.stop_reason
        if episode.stop_reason == StopReason.INFRA:
            return
        rollout.end_state = one.env.tables
        answered = episode.stop_reason == StopReason.ANSWERED
        rollout.score = score_episode(
            rollout.arena,
            rollout.calls,
            episode.messages[-1].content if answered else None,
            self._reward,
            self._final_answer,
            end_state=rollout.end_state,
        )
