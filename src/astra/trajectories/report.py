"""Metrics and plots of stage ``trajectories``: one trajectory's share in them."""

from __future__ import annotations

from collections.abc import Sequence

from astra.records.base import content_id
from astra.records.message import MessageRole
from astra.records.task import Task, TaskKind
from astra.records.trajectory import Trajectory
from astra.store.metrics import StageMetrics
from astra.trajectories.agenda import Agenda
from astra.trajectories.dependencies import held_dependencies
from astra.trajectories.follow_up import SOLVABLE


class Report:
    """What the stage's metrics say of its trajectories, one after the other."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._asked: set[str] = set()
        """Hashes of what users said, and of that with the task that they said it for."""

    def measure(self, metrics: StageMetrics, trajectory: Trajectory) -> None:
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
        said = [m.content for m in trajectory.messages if m.role == MessageRole.USER]
        if len(said) > 1:
            metrics.count("conversations")
            metrics.distribution("user_messages_per_conversation", [len(said)])
        first = self._agenda.one(trajectory.task_id)
        later = [self._agenda.one(task_id) for task_id in trajectory.follow_ups]
        # Nothing can be called before the user tells the value that is missing.
        waits = first is not None and first.kind is TaskKind.MISSING_PARAMETER and len(said) == 1
        tasks = [] if waits else [task for task in (first, *later) if task is not None]
        if first is not None and first.kind not in SOLVABLE:
            # Their openings repeat other tasks' questions on purpose; telling a value asks nothing.
            said = [] if first.kind is TaskKind.MISSING_PARAMETER else said[1:]
        self._dependencies(metrics, tasks, trajectory)
        self._questions(metrics, said, trajectory.task_id)

    def _dependencies(
        self, metrics: StageMetrics, tasks: Sequence[Task], trajectory: Trajectory
    ) -> None:
        """Count planned dependencies between calls, and those that the calls kept."""
        planned = [
            dependency
            for task in tasks
            for dependency in held_dependencies(task.plan, trajectory.calls)
        ]
        held = sum(dependency.held for dependency in planned)
        metrics.count("dependencies_planned", len(planned))
        metrics.count("dependencies_held", held)
        metrics.count("trajectories_with_held_dependency", int(held > 0))

    def _questions(self, metrics: StageMetrics, said: Sequence[str], task_id: str) -> None:
        """Count what users asked for, and what was asked for in another task's episodes already."""
        for text in said:
            for_task = content_id([text, task_id])
            if for_task in self._asked:
                continue
            repeats = content_id([text]) in self._asked
            self._asked |= {for_task, content_id([text])}
            metrics.count("questions")
            metrics.count("questions_repeated", int(repeats))


def _turns(trajectory: Trajectory) -> int:
    return sum(message.role == "assistant" for message in trajectory.messages)
