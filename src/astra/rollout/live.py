"""One episode as tokens with the mask of those to train on, between an engine and its tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from astra.agent.episode import Episode, EpisodeLimits
from astra.agent.thoughts import split_thought
from astra.agent.toolcalls import parse_assistant
from astra.arena.env import ArenaEnv
from astra.arena.prompt import initial_messages
from astra.arena.reward import EpisodeScore, FinalAnswer, RewardMode, score_episode
from astra.arena.talk import hear_user
from astra.arena.user import User
from astra.errors import AstraError, StageStop
from astra.records.environment import Arena, ArenaTool
from astra.records.message import (
    CallStatus,
    ExecutedCall,
    Message,
    MessageRole,
    ToolCall,
    ToolResult,
)
from astra.records.state import Tables
from astra.records.trajectory import StopReason
from astra.records.world import TraceEvent
from astra.rollout.chat import ChatCodec
from astra.rollout.engine import Turn
from astra.sandbox.protocol import Sandbox
from astra.settings import StageConfig


class RolloutLimits(StageConfig):
    """What one episode may use, in turns, calls and tokens."""

    max_turns: int
    """Assistant turns."""
    max_calls: int
    max_parallel_calls: int
    """Calls of one turn."""
    max_result_chars: int
    """Longer tool results are cut before the model reads them."""
    max_turn_tokens: int
    """Tokens of one assistant turn."""
    max_prompt_tokens: int
    max_response_tokens: int
    """Tokens after the prompt: what the model writes, what its tools return and its user says."""

    def episode(self) -> EpisodeLimits:
        return EpisodeLimits(
            max_turns=self.max_turns,
            max_calls=self.max_calls,
            max_parallel_calls=self.max_parallel_calls,
            max_result_chars=self.max_result_chars,
        )


PAPER_LIMITS = RolloutLimits(
    max_turns=32,
    max_calls=64,
    max_parallel_calls=16,
    max_result_chars=8192,
    max_turn_tokens=4096,
    max_prompt_tokens=25600,
    max_response_tokens=49152,
)
"""The limits of episodes that no parameters bound: those of conf/rl/base.yaml, which says what the
paper states of them."""


@dataclass(frozen=True)
class EpisodeJob:
    """One episode to roll: an arena and the irrelevant tools it offers this time."""

    arena: Arena
    extra_tools: tuple[ArenaTool, ...] = ()
    user: User | None = None
    """Who answers the agent in the place of the goal's script; None: nobody does."""

    def environment(self, sandbox: Sandbox) -> ArenaEnv:
        """The arena as this episode plays it. Raises ArenaError."""
        env = ArenaEnv(self.arena, sandbox, self.extra_tools)
        env.user = self.user or env.user
        return env


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
    trace: tuple[TraceEvent, ...] | None = None
    """What happened in a persistent world; None for any other arena."""
    problem: str = ""
    """Why our own machinery failed; empty where it did not."""
    user_failed: bool = False
    """Whether it was the user who failed."""

    @property
    def final_text(self) -> str | None:
        """The final message without its thoughts; None where the episode has none."""
        if self.stop_reason != StopReason.ANSWERED:
            return None
        return split_thought(self.messages[-1].content)[1]

    @property
    def turns(self) -> int:
        return sum(message.role == MessageRole.ASSISTANT for message in self.messages)

    def append(self, ids: Sequence[int], logprobs: Sequence[float] | None) -> None:
        """Extend completion, mask and log-probabilities alike. Sampled ids come with their
        log-probabilities and are trained on (mask 1); the environment's come with None (mask 0)."""
        self.completion_ids += ids
        self.mask += [int(logprobs is not None)] * len(ids)
        self.logprobs += logprobs if logprobs is not None else [0.0] * len(ids)


class LiveRollout:
    """An episode while it is played; a driver decides when what happens.

    ``take`` a turn; if it returns calls, ``answer`` them; then ``next_turn`` says what to feed the
    engine, or that the episode is over. A turn without calls may have been answered by a user: then
    the episode goes on as well.

    What was sampled stays as it was, thoughts too: a template that forgets thoughts once the user
    speaks again (``Thoughts.CURRENT``) forgets none within an episode, so that log-probabilities
    are those of what was sampled from. Served, it does forget them.
    """

    def __init__(
        self,
        job: EpisodeJob,
        env: ArenaEnv,
        codec: ChatCodec,
        limits: RolloutLimits,
        weight_version: int,
    ) -> None:
        messages = initial_messages(job.arena)
        self.env = env
        self.rollout = Rollout(job.arena, codec.encode_prompt(messages, env.tools), weight_version)
        self.episode = Episode(messages, env.tools, limits.episode())
        self._codec = codec
        self._limits = limits
        self._unread: Sequence[Message] = ()
        if len(self.rollout.prompt_ids) > limits.max_prompt_tokens:
            self.episode.abort(StopReason.MAX_TOKENS)

    @property
    def ended(self) -> bool:
        return self.episode.stop_reason is not None

    @property
    def most_tokens(self) -> int:
        """What the conversation can grow to: memory that it may need."""
        return len(self.rollout.prompt_ids) + self._limits.max_response_tokens

    def budget(self, suffix: int = 0) -> int:
        """Tokens that the next turn may have, after ``suffix`` tokens of results or the user."""
        left = self._limits.max_response_tokens - len(self.rollout.completion_ids) - suffix
        return min(self._limits.max_turn_tokens, left)

    def take(self, turn: Turn) -> tuple[ToolCall, ...]:
        """Append a turn as it was sampled; returns the calls to run before the next one.

        One without any is the user's to answer, where there is one.
        """
        self.rollout.append(turn.ids, turn.logprobs)
        message = self._read(turn.ids)
        if turn.finish == "length":
            # What was cut off is not executed, and no EOS is invented for it.
            self.episode.messages.append(message)
            self.episode.abort(StopReason.MAX_TOKENS)
            return ()
        self.env.say(split_thought(message.content)[1])
        before = len(self.episode.messages)
        calls = self.episode.offer(message)
        self._unread = self.episode.messages[before + 1 :]
        if not message.tool_calls:
            self._hear()
        return calls

    def _hear(self) -> None:
        """Go on with what the user answers, or end as they do. A user who fails ends it as our own
        machinery does; only what concerns every episode (StageStop) is raised."""
        try:
            message = hear_user(self.env, self.episode)
        except StageStop:
            raise
        except AstraError as error:
            self.lose(f"the user failed: {error}")
            self.rollout.user_failed = True
            return
        self._unread = () if message is None else (message,)

    def _read(self, ids: Sequence[int]) -> Message:
        thought, spoken = split_thought(self._codec.decode(ids))
        message = parse_assistant(spoken, len(self.episode.calls))
        if not thought:
            return message
        return message.model_copy(update={"content": f"{thought}{message.content}"})

    def answer(self, results: Sequence[ToolResult]) -> None:
        """Take the results of the calls that ``take`` returned."""
        self._unread = self.episode.observe(results)
        for result in results:
            if result.status == CallStatus.INFRA:
                self.episode.stop_reason = StopReason.INFRA
                self.rollout.problem = result.content

    def lose(self, problem: str) -> None:
        """End the episode because our own machinery failed it; it is never scored, however it had
        ended."""
        self.episode.stop_reason = StopReason.INFRA
        self.rollout.problem = problem

    def next_turn(self) -> tuple[list[int], int] | None:
        """Tool results or the user's words as ids, appended, and the budget of the turn to come;
        None at the end."""
        if self.ended:
            return None
        suffix = self._codec.suffix_ids(self._unread)
        room = self.budget(len(suffix))
        if room <= 0:
            self.episode.abort(StopReason.MAX_TOKENS)
            return None
        self.rollout.append(suffix, None)
        return suffix, room

    def conclude(self, mode: RewardMode, final_answer: FinalAnswer) -> Rollout:
        """The finished rollout, scored unless our own machinery failed it."""
        rollout, episode = self.rollout, self.episode
        rollout.messages = tuple(episode.messages)
        rollout.calls = tuple(episode.calls)
        rollout.stop_reason = episode.stop_reason
        if episode.stop_reason == StopReason.INFRA:
            return rollout
        rollout.end_state, rollout.trace = self.env.tables, self.env.trace
        rollout.score = score_episode(
            rollout.arena,
            rollout.calls,
            rollout.final_text,
            mode,
            final_answer,
            end_state=rollout.end_state,
            trace=rollout.trace,
        )
        return rollout
