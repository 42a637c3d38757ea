"""Policy, environment and user: who acts in an episode, executes its calls, answers its words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from astra.records.message import Message, ToolCall, ToolResult
from astra.records.tool import Tool
from astra.records.trajectory import StopReason


class Policy(Protocol):
    """Produces the next assistant message. ``name`` is stored with the trajectory."""

    name: str

    async def act(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
        """Raises OutOfTokens when its own budget is spent, any other AstraError on an outage."""
        ...


class Env(Protocol):
    """Executes tool calls of one episode; its state lives until ``close``."""

    @property
    def tools(self) -> tuple[Tool, ...]: ...

    async def execute(self, call: ToolCall) -> ToolResult:
        """Run one well-formed call (known tool, valid arguments); failures are results too.

        Calls of one turn arrive concurrently, in the order the model wrote them. An AstraError
        means that our machinery failed and the episode cannot go on.
        """
        ...

    async def close(self) -> None: ...


class Respondent(Protocol):
    """The user of one episode, who answers what the policy says."""

    def listen(self, message: Message) -> None:
        """Take note of a message of the policy, before any of its calls runs."""
        ...

    async def respond(self) -> Message | StopReason:
        """The answer to the policy's last message, which has no call; or why the episode ends:
        ANSWERED or USER_LEFT. Tools that the user brings are the environment's afterwards.

        An AstraError means that the user failed, so that the episode says nothing about the policy.
        """
        ...
