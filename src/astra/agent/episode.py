"""The multi-turn episode as a state machine without I/O.

Every driver shares it: trajectory synthesis over MCP servers, rollouts in arenas, benchmark
runs. A driver alternates ``offer`` (an assistant message) and ``observe`` (results of the
calls that ``offer`` returned) until ``stop_reason`` is set. Whatever the model writes, each
of its calls gets exactly one tool message, in the order of the calls. Where a user answers a
message without calls, ``converse`` takes the episode on.

Limits end an episode with a StopReason, never an exception, checked in this order:
answered (no call in the turn, and no user who goes on), user_left (the driver's to say, as it asks
the user), max_turns, max_calls. The user is asked first: an episode whose last turn contents them
is answered, and one that they leave is left, whatever limit that turn reached. max_tokens, timeout
and infra are the driver's to report through ``abort``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from astra.records.message import (
    CallStatus,
    ExecutedCall,
    Message,
    MessageRole,
    ToolCall,
    ToolResult,
)
from astra.records.tool import Tool
from astra.records.trajectory import StopReason
from astra.settings import StageConfig
from astra.text.schemas import violation
from astra.text.strict_json import STRICT, refuse_unstorable


class EpisodeLimits(StageConfig):
    """What one episode may use, whoever acts."""

    max_turns: int
    """Assistant turns."""
    max_calls: int
    max_parallel_calls: int
    """Calls of one turn."""
    max_result_chars: int
    """Longer tool results are cut before the model reads them, and say so."""


class Episode:
    """One conversation. Starts from ``messages`` (system, user); grows to a full transcript."""

    def __init__(
        self, messages: Sequence[Message], tools: Sequence[Tool], limits: EpisodeLimits
    ) -> None:
        self.messages: list[Message] = list(messages)
        self.calls: list[ExecutedCall] = []
        self.stop_reason: StopReason | None = None
        self.turn = 0
        self._limits = limits
        self._tools = {tool.name: tool for tool in tools}
        self._turn_calls: tuple[ToolCall, ...] = ()
        self._answered: dict[int, ToolResult] = {}

    def offer(self, message: Message) -> tuple[ToolCall, ...]:
        """Take an assistant message; returns the well-formed calls to execute.

        Malformed, unknown and surplus calls are answered here with an error message, so that
        the model can recover. If every call was answered, the turn closes at once.
        """
        if self.stop_reason is not None:
            raise ValueError(f"episode already ended: {self.stop_reason}")
        if self._turn_calls:
            raise ValueError("the calls of this turn have not been observed yet")
        self.messages.append(message)
        if not message.tool_calls:
            self.stop_reason = StopReason.ANSWERED
            return ()
        self._turn_calls = message.tool_calls
        self._answered = {}
        budget = self._limits.max_calls - len(self.calls)
        wanted: list[ToolCall] = []
        for position, call in enumerate(message.tool_calls):
            refusal = self._refusal(call, position, budget)
            if refusal is None:
                wanted.append(call)
            else:
                self._answered[position] = refusal
        if not wanted:
            self.observe(())
        return tuple(wanted)

    def observe(self, results: Sequence[ToolResult]) -> tuple[Message, ...]:
        """Take the results of the calls ``offer`` returned; returns the new tool messages."""
        awaited = len(self._turn_calls) - len(self._answered)
        if not self._turn_calls or len(results) != awaited:
            raise ValueError(f"{len(results)} results for {awaited} calls of this turn")
        remaining = iter(results)
        added: list[Message] = []
        for position, call in enumerate(self._turn_calls):
            result = self._answered.get(position) or next(remaining)
            self.calls.append(ExecutedCall(turn=self.turn, call=call, result=result))
            added.append(
                Message(
                    role=MessageRole.TOOL,
                    content=_shorten(result.content, self._limits.max_result_chars),
                    tool_call_id=call.id,
                    name=call.name,
                )
            )
        self.messages.extend(added)
        self._turn_calls = ()
        self._answered = {}
        self.turn += 1
        if self.turn >= self._limits.max_turns:
            self.stop_reason = StopReason.MAX_TURNS
        elif len(self.calls) >= self._limits.max_calls:
            self.stop_reason = StopReason.MAX_CALLS
        return tuple(added)

    def converse(self, message: Message, tools: Sequence[Tool]) -> None:
        """Go on after an assistant message without calls, which the user answers with ``message``.

        That turn counts against ``max_turns`` like one with calls. ``tools`` are all that may be
        called from now on, those that the user brought included.
        """
        if self.stop_reason != StopReason.ANSWERED:
            raise ValueError("a user answers only what the assistant said without a call")
        self.messages.append(message)
        self._tools = {tool.name: tool for tool in tools}
        self.turn += 1
        self.stop_reason = StopReason.MAX_TURNS if self.turn >= self._limits.max_turns else None

    def abort(self, reason: StopReason) -> None:
        """End the episode for a reason that only the driver can see."""
        if self.stop_reason is None:
            self.stop_reason = reason

    def _refusal(self, call: ToolCall, position: int, budget: int) -> ToolResult | None:
        if position >= self._limits.max_parallel_calls or position >= budget:
            return _failed(
                CallStatus.REFUSED,
                f"not executed: at most {min(self._limits.max_parallel_calls, budget)} "
                "calls are allowed here",
            )
        tool = self._tools.get(call.name)
        if tool is None:
            names = ", ".join(sorted(self._tools))
            return _failed(
                CallStatus.UNKNOWN_TOOL, f"there is no tool {call.name!r}; tools: {names}"
            )
        try:
            parse_arguments(tool, call.arguments)
        except ValueError as error:
            return _failed(CallStatus.MALFORMED, str(error))
        return None


def parse_arguments(tool: Tool, arguments: str) -> dict[str, Any]:
    """Arguments as an object that satisfies the tool's schema. Raises ValueError saying why."""
    try:
        parsed = STRICT.decode(arguments)
        refuse_unstorable(parsed)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"arguments of {tool.name} are not valid JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise ValueError(f"arguments of {tool.name} must be a JSON object")
    if problem := violation(parsed, tool.parameters):
        raise ValueError(f"arguments of {tool.name}: {problem}")
    return parsed


def _failed(status: CallStatus, reason: str) -> ToolResult:
    return ToolResult(status=status, content=f"error: {reason}")


def _shorten(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[cut: {len(text) - limit} more characters]"
