"""One episode of an exported arena: chat messages in; results, the user's words and a reward out.

Every framework drives ``ArenaEpisode``, so that none has a reward or a user of its own: calls run
in the sandbox, broken calls are answered and counted, what is said without a call is answered by
the user where the arena has one, and the score is computed from executed results by the same code
as in stage ``rl``.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from astra.agent.episode import Episode
from astra.agent.thoughts import split_thought
from astra.arena.env import ArenaEnv, execute_batch
from astra.arena.prompt import initial_messages
from astra.arena.reward import EpisodeScore, score_episode
from astra.arena.talk import hear_user
from astra.errors import AstraError
from astra.export.rows import ExportedArena, ExportError
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
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import Sandbox

MIN_TIER = "ASTRA_SANDBOX_MIN_TIER"
"""The environment variable that names the weakest isolation to accept: A, B (default) or C."""


class ArenaFault(ExportError):
    """Our machinery failed: the episode says nothing about the policy and must not be scored."""


_sandboxes: dict[SandboxLimits, LocalSandbox] = {}
_lock = threading.Lock()


def shared_sandbox(limits: SandboxLimits) -> Sandbox:
    """The process's sandbox for these limits, started at first use and ended at exit.

    Raises SandboxUnavailable where no isolation of the demanded tier works.
    """
    with _lock:
        if limits not in _sandboxes:
            opened = LocalSandbox(limits, min_tier=os.environ.get(MIN_TIER, "B"))
            atexit.register(opened.close)
            _sandboxes[limits] = opened
        return _sandboxes[limits]


class ArenaEpisode:
    """Alternate an assistant message in and what answers it out until ``done``; then ``score``.

    The sandbox's session opens at the first call and ends with ``close``.
    """

    def __init__(self, row: ExportedArena, sandbox: Sandbox | None = None) -> None:
        self.row = row
        self._env = ArenaEnv(
            row.arena, sandbox or shared_sandbox(row.options.sandbox), row.extra_tools
        )
        self._episode = Episode(initial_messages(row.arena), self._env.tools, row.options.limits)
        self._final: str | None = None

    @property
    def prompt(self) -> list[dict[str, Any]]:
        """The first messages, as chat APIs take them."""
        return [chat_document(message) for message in initial_messages(self.row.arena)]

    @property
    def tools(self) -> list[dict[str, Any]]:
        """Function schemas of the tools on offer; a user may bring more on the way."""
        return [tool.openai() for tool in self._env.tools]

    @property
    def calls(self) -> tuple[ExecutedCall, ...]:
        """The calls so far with their results, broken ones included."""
        return tuple(self._episode.calls)

    @property
    def done(self) -> bool:
        """Whether no further message is taken."""
        return self._episode.stop_reason is not None

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the episode ended; None while it goes on."""
        return self._episode.stop_reason

    def offer(self, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Take an assistant message as chat APIs give it; return the messages that answer it.

        Each call gets one tool message, in order. A message without calls is answered by the user,
        in one message that also holds the documents of the tools that they bring; it ends the
        episode where the arena has no user, or the user ends it. Raises ArenaFault when the
        sandbox or the user failed.
        """
        assistant = assistant_message(message, len(self._episode.calls))
        first_reply = len(self._episode.messages) + 1  # the assistant's message comes before it
        self._env.say(split_thought(assistant.content)[1])
        calls = self._episode.offer(assistant)
        if calls:
            results = execute_batch([(self._env, call) for call in calls])
            self._episode.observe(results)
            self._refuse_faults(results)
        elif not assistant.tool_calls:
            self._hear()
        if self._episode.stop_reason == StopReason.ANSWERED:
            self._final = assistant.content
        return [chat_document(reply) for reply in self._episode.messages[first_reply:]]

    async def offer_async(self, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Run ``offer`` in a thread, so that episodes of one event loop do not wait for another."""
        return await asyncio.to_thread(self.offer, message)

    def _hear(self) -> None:
        try:
            hear_user(self._env, self._episode)
        except AstraError as error:
            self._episode.stop_reason = StopReason.INFRA
            raise ArenaFault(f"arena {self.row.id}: the user failed: {error}") from error

    def _refuse_faults(self, results: Sequence[ToolResult]) -> None:
        for result in results:
            if result.status == CallStatus.INFRA:
                self._episode.stop_reason = StopReason.INFRA
                raise ArenaFault(f"arena {self.row.id}: {result.content}")

    def cut(self, reason: StopReason = StopReason.MAX_TOKENS) -> None:
        """End the episode for the framework: what was written last is no final answer."""
        self._episode.abort(reason)

    def score(self) -> EpisodeScore:
        """The score of what happened so far. Raises ArenaFault if our machinery failed."""
        if self._episode.stop_reason == StopReason.INFRA:
            raise ArenaFault(f"arena {self.row.id}: the sandbox or the user failed in this episode")
        return score_row(
            self.row, self._episode.calls, self._final, self._env.tables, self._env.trace
        )

    def close(self) -> None:
        """End the sandbox's session."""
        self._env.close_now()


def score_row(
    row: ExportedArena,
    calls: Sequence[ExecutedCall],
    final_text: str | None,
    end_state: Tables | None,
    trace: Sequence[TraceEvent] | None = None,
) -> EpisodeScore:
    """Score executed calls with the row's options; ``end_state`` is ``ArenaEnv.tables``, ``trace``
    is ``ArenaEnv.trace``."""
    options = row.options
    return score_episode(
        row.arena, calls, final_text, options.reward, options.final_answer,
        end_state=end_state, trace=trace,
    )  # fmt: skip


def assistant_message(message: Mapping[str, Any], first_id: int = 0) -> Message:
    """A chat API's assistant message as a record; arguments may be JSON text or an object."""
    calls: list[ToolCall] = []
    for offset, call in enumerate(message.get("tool_calls") or ()):
        function: Mapping[str, Any] = call.get("function") or call
        arguments = function.get("arguments", "{}")
        text = (
            arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        )
        identifier = str(call.get("id") or f"call_{first_id + offset}")
        calls.append(ToolCall(id=identifier, name=str(function.get("name", "")), arguments=text))
    content = message.get("content")
    if isinstance(content, list):  # content parts
        content = "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return Message(role=MessageRole.ASSISTANT, content=str(content or ""), tool_calls=tuple(calls))


def chat_document(message: Message) -> dict[str, Any]:
    """A record as a chat API's message."""
    document: dict[str, Any] = {"role": message.role.value, "content": message.content}
    if message.role == MessageRole.TOOL:
        document["tool_call_id"] = message.tool_call_id
        document["name"] = message.name
    return document
