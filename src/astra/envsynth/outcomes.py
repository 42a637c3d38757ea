"""What came of a call in the sandbox, and how a teacher is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from astra.envsynth.schedule import TrialRun
from astra.envsynth.static import Problem
from astra.records.base import canonical_json
from astra.sandbox.protocol import SandboxResult, SandboxStatus

MAX_ERROR_CHARS = 200
"""A longer message is no clean refusal: it may hold the tool's data."""
_DECLARED = "ValueError: "
"""How a tool refuses on purpose; any other exception is a failure of its own."""


def answered(run: TrialRun) -> bool:
    """Whether the call returned a value."""
    return run.result.status == SandboxStatus.OK


def unclean(result: SandboxResult) -> Problem | None:
    """The problem of a failure that is no clean refusal."""
    return None if is_clean(result) else ("unclean_error", result.error[:200])


def is_clean(result: SandboxResult) -> bool:
    """Whether a failure is one short line that the tool raised on purpose."""
    text = result.error.removeprefix(_DECLARED)
    return (
        result.error.startswith(_DECLARED)
        and 0 < len(text.strip()) <= MAX_ERROR_CHARS
        and "\n" not in text
    )


def call_text(name: str, arguments: Mapping[str, Any]) -> str:
    """A call as a line of text, its arguments cut short."""
    given = ", ".join(f"{key}={canonical_json(value)}" for key, value in arguments.items())
    return f"{name}({given:.150})"


def outcome_text(run: TrialRun) -> str:
    """What a call returned or raised, cut short."""
    if answered(run):
        return f"returned {canonical_json(run.result.value):.100}"
    return f"raised {run.result.error:.100}"
