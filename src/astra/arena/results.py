"""What an execution gave, as the model reads it."""

from __future__ import annotations

import json
from typing import Any

from astra.records.message import CallStatus, ToolResult
from astra.sandbox.protocol import SandboxResult, SandboxStatus

_STATUSES = {
    SandboxStatus.OK: CallStatus.OK,
    SandboxStatus.TIMEOUT: CallStatus.TIMEOUT,
    SandboxStatus.INFRA: CallStatus.INFRA,
}
"""Every other way a call can end is the tool's own failure: ERROR."""
_PLAIN_ERROR = "ValueError: "
"""What tools raise on purpose; its message alone is what the model should read."""


def tool_result(result: SandboxResult) -> ToolResult:
    """What the model reads of an execution: text as is, other values as JSON."""
    status = _STATUSES.get(result.status, CallStatus.ERROR)
    if status == CallStatus.OK:
        return ToolResult(status=status, content=result_text(result.value), value=result.value)
    return ToolResult(status=status, content=f"error: {failure_text(result)}")


def failure_text(result: SandboxResult) -> str:
    """Why an execution failed, as the model should read it."""
    return result.error.removeprefix(_PLAIN_ERROR) or result.status.value


def result_text(value: Any) -> str:
    """What a tool returned as the text of its message, written as in the SFT track."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
