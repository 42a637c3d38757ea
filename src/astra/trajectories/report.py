"""Metrics and plots of stage ``trajectories``: one trajectory's share in them."""

from __future__ import annotations

from astra.records.message import MessageRole
from astra.records.trajectory import Trajectory
from astra.store.metrics import StageMetrics


def measure(metrics: StageMetrics, trajectory: Trajectory) -> None:
    """Add one trajectory to the stage's counts and distributions."""
    metrics.count("messages", len(trajectory.messages))
    metrics.count("calls", len(trajectory.calls))
    metrics.count(f"execution_{trajectory.execution}")
    for call in trajectory.calls:
        metrics.count(f"calls_{call.result.status}")
    metrics.distribution("calls_per_trajectory", [len(trajectory.calls)])
    metrics.distribution("turns_per_trajectory", [_turns(trajectory)])
    metrics.distribution("tools_shown", [len(trajectory.tools)])
    metrics.distribution("stop_reason", [trajectory.stop_reason])
    metrics.distribution("domain", [trajectory.domain])
    metrics.distribution("call_status", [call.result.status for call in trajectory.calls])

    user_messages = sum(message.role == MessageRole.USER for message in trajectory.messages)
    if user_messages > 1:
        metrics.count("conversations")
        metrics.distribution("user_messages_per_conversation", [user_messages])


def _turns(trajectory: Trajectory) -> int:
    return sum(message.role == "assistant" for message in trajectory.messages)
