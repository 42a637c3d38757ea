"""Tasks on their way to the table, and the rejections of those that do not get there."""

from __future__ import annotations

from dataclasses import dataclass

from astra.llm.protocol import ParseError, ProviderError
from astra.records.score import Rejection
from astra.records.task import Task
from astra.tasking.checks import TaskProblem

MAX_ERROR_CHARS = 500


@dataclass(frozen=True)
class Origin:
    """What a task is made for: a chain or, without one, a server, and which of its tasks it is."""

    item: str
    """Id of the chain or of the server."""
    part: str
    """Which of the item's tasks: template, sample, and what was made of it."""

    def of(self, part: str) -> Origin:
        """The origin of a task that is made from this one."""
        return Origin(self.item, f"{self.part}, {part}")

    def rejected(
        self, reason: str, detail: str = "", said: str = "", attempt: int = 0, final: bool = True
    ) -> Rejection:
        """The rejection of the task; the stage writes it to ``data/rejected/tasks.parquet``."""
        return Rejection(
            item=self.item,
            part=self.part,
            reason=reason,
            detail=detail,
            said=said,
            attempt=attempt,
            final=final,
        )

    def refused(
        self, problem: TaskProblem, question: str, attempt: int = 0, final: bool = True
    ) -> Rejection:
        """The rejection by a rule; its detail holds the question."""
        detail = _with_question(problem.detail, question)
        return self.rejected(problem.reason, detail, attempt=attempt, final=final)

    def failed(
        self, error: ProviderError | ParseError, question: str = "", attempt: int = 0
    ) -> Rejection:
        """The rejection after an ask without a usable answer; ``question``: what it was about."""
        reason = "ask_failed" if isinstance(error, ProviderError) else "reply_unparsable"
        detail = _with_question(str(error)[:MAX_ERROR_CHARS], question)
        return self.rejected(reason, detail, attempt=attempt)


@dataclass(frozen=True)
class Draft:
    """A task that has passed every check so far."""

    origin: Origin
    task: Task

    def rejected(self, reason: str) -> Rejection:
        """The rejection of a task whose question is the reason."""
        return self.origin.rejected(reason, self.task.question)


def _with_question(detail: str, question: str) -> str:
    return detail if question in detail else f"{detail}: {question}"
