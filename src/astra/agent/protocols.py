"""Policy and environment: what acts in an episode, and what executes its calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from astra.records.message import Message, ToolCall, ToolResult
from astra.records.tool import Tool


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
