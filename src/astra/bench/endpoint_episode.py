"""One episode in an arena over an endpoint: loop, sandbox and checker of training.

A turn, prompt or conversation longer than the limits ends its episode, as in training.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from astra.agent.episode import Episode
from astra.agent.thoughts import split_thought
from astra.arena.env import ArenaEnv, execute_batch
from astra.arena.prompt import initial_messages
from astra.arena.reward import score_episode
from astra.arena.talk import hear_user
from astra.bench.harness.client import ChatClient, ContextOverflow
from astra.errors import AstraError, OutOfTokens, StageStop
from astra.llm.policy import wire_message
from astra.records.message import CallStatus, Message, MessageRole, ToolCall
from astra.records.trajectory import StopReason
from astra.rollout.live import EpisodeJob, Rollout, RolloutLimits
from astra.sandbox.protocol import Sandbox


class EndpointEpisode:
    """One episode, with what it has cost so far."""

    def __init__(
        self,
        job: EpisodeJob,
        client: ChatClient,
        limits: RolloutLimits,
        fields: Mapping[str, Any],
    ) -> None:
        """``fields`` of each request besides its messages and tools: how a turn is sampled."""
        self.steps = self.prompt_tokens = self.completion_tokens = 0
        """Completions asked for, and the tokens of all, as the endpoint counts them."""
        self.overflow = ""
        """What the endpoint said of a conversation that outgrew its context; empty without one."""
        self._arena = job.arena
        self._job = job
        self._client = client
        self._limits = limits
        self._fields = {"max_tokens": limits.max_turn_tokens, **fields}
        self._first_prompt = 0
        self._user_failed = False
        self._spelling: str | None = None
        """The field in which the endpoint gives thoughts, and gets them back."""

    def play(self, sandbox: Sandbox) -> Rollout:
        """The finished episode, scored unless our own machinery failed a call of it.

        Raises CompletionError where the endpoint gives no turn.
        """
        env = self._job.environment(sandbox)
        try:
            env.open()
            episode = Episode(initial_messages(self._arena), env.tools, self._limits.episode())
            problem = ""
            while episode.stop_reason is None:
                problem = self._turn(episode, env)
            rollout = Rollout(
                self._arena, [], 0, messages=tuple(episode.messages), calls=tuple(episode.calls),
                stop_reason=episode.stop_reason, end_state=env.tables, trace=env.trace,
                problem=problem, user_failed=self._user_failed,
            )  # fmt: skip
        finally:
            env.close_now()
        if rollout.stop_reason != StopReason.INFRA:
            rollout.score = score_episode(
                rollout.arena, rollout.calls, rollout.final_text, end_state=rollout.end_state,
                trace=rollout.trace,
            )  # fmt: skip
        return rollout

    def _turn(self, episode: Episode, env: ArenaEnv) -> str:
        """One turn and its calls, or the user's answer to it; what our own machinery failed, if it
        did. Tools that the user brings are offered from then on."""
        try:
            message = self._ask(episode, [tool.openai() for tool in env.tools])
        except ContextOverflow as error:
            self.overflow = str(error)
            episode.abort(StopReason.MAX_TOKENS)
            return ""
        except OutOfTokens:
            episode.abort(StopReason.MAX_TOKENS)
            return ""
        env.say(split_thought(message.content)[1])
        calls = episode.offer(message)
        if not message.tool_calls:
            return self._hear(episode, env)
        if not calls:
            return ""
        results = execute_batch([(env, call) for call in calls])
        episode.observe(results)
        failed = [one.content for one in results if one.status == CallStatus.INFRA]
        if failed:
            episode.stop_reason = StopReason.INFRA
        return failed[0] if failed else ""

    def _hear(self, episode: Episode, env: ArenaEnv) -> str:
        """Let the user answer, if there is one; why they failed, if they did."""
        try:
            hear_user(env, episode)
        except StageStop:
            raise
        except AstraError as error:
            episode.stop_reason = StopReason.INFRA
            self._user_failed = True
            return f"the user failed: {error}"
        return ""

    def _ask(self, episode: Episode, tools: list[dict[str, Any]]) -> Message:
        """The next turn. Raises OutOfTokens where it, or what came before it, is too long."""
        messages = [wire_message(message, self._spelling) for message in episode.messages]
        body: dict[str, Any] = {"messages": messages, **self._fields}
        if tools:
            body["tools"] = tools
        done = self._client.complete(self._arena.id, body)
        self.steps += 1
        self.prompt_tokens += done.prompt_tokens
        self.completion_tokens += done.completion_tokens
        self._first_prompt = self._first_prompt or done.prompt_tokens
        before = done.prompt_tokens - self._first_prompt
        if (
            self._first_prompt > self._limits.max_prompt_tokens
            or before >= self._limits.max_response_tokens
        ):
            # In training there is no such turn; here its length is known once it is there.
            raise OutOfTokens("the conversation is longer than the limits")
        self._spelling = done.reply.reasoning_key or self._spelling
        message = Message(
            role=MessageRole.ASSISTANT,
            content=done.reply.content.strip(),
            reasoning=done.reply.reasoning,
            tool_calls=tuple(
                ToolCall(id=f"call_{len(episode.calls) + at}", name=name, arguments=arguments)
                for at, (name, arguments) in enumerate(done.reply.tool_calls)
            ),
        )
        response = before + done.completion_tokens
        if done.reply.truncated or response > self._limits.max_response_tokens:
            episode.messages.append(message)
            raise OutOfTokens("the turn is longer than the limits")
        return message
