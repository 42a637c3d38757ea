"""Failures the host injects into emulated calls (ASTRA section 3.3: 20 % of them).

The draw depends on the episode and the position of the call in it, never on the model or on
timing. The model reads a plain error line and may retry.
"""

from __future__ import annotations

import random

from astra.records.base import content_id
from astra.records.message import CallStatus, ToolResult
from astra.records.tool import Tool
from astra.text.verbs import changes_state

TRANSIENT_MARKS = ("timed out", "is unreachable", "gave no answer")
"""Texts by which an agent can tell a result that is worth a retry."""


class FailureInjector:
    """Draws, call by call, which emulated calls of one episode fail."""

    def __init__(self, rate: float, episode: str) -> None:
        self._rate = rate
        self._episode = episode
        self._calls = 0

    def draw(self, tool: Tool) -> ToolResult | None:
        """The failure of the episode's next call, or None if it goes through.

        That of a change says that its end is unknown: of a real outage nobody knows more.
        """
        rng = random.Random(int(content_id(["failure", self._episode, self._calls]), 16))
        self._calls += 1
        if rng.random() >= self._rate:
            return None
        if rng.random() < 0.5:
            return _failure(CallStatus.TIMEOUT, f"{tool.name} timed out", tool)
        return _failure(CallStatus.UNREACHABLE, f"{tool.name} is unreachable", tool)


def _failure(status: CallStatus, problem: str, tool: Tool) -> ToolResult:
    open_end = "; it may have taken effect" if changes_state(tool.name, tool.effect) else ""
    return ToolResult(status=status, content=f"error: {problem}{open_end}")


def looks_transient(text: str) -> bool:
    """Whether a result's text reports a failure that may pass."""
    return text.startswith("error:") and any(mark in text for mark in TRANSIENT_MARKS)
