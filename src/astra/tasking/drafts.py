"""Tasks on their way to the table, and what is kept of those that do not get there."""

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

    def of(self, part: str) -> Origin:
        """Of a task that is made from this one."""
        return Origin(self.item, f"{self.part}, {part}")

    def rejected(self, reason: str, detail: str = "", said: str = "") -> Rejection:
        return Rejection(item=self.item, part=self.part, reason=reason, detail=detail, said=said)

    def refused(self, problem: TaskProblem, question: str) -> Rejection:
        """By a rule; the question can be read in the detail."""
        return self.rejected(problem.reason, _with_question(problem.detail, question))

    def failed(self, error: ProviderError | ParseError, question: str = "") -> Rejection:
        """Not answered; ``question`` is the one that was asked about, if there was any."""
        reason = "ask_failed" if isinstance(error, ProviderError) else "reply_unparsable"
        return self.rejected(reason, _with_question(str(error)[:MAX_ERROR_CHARS], question))


@dataclass(frozen=True)
class Draft:
    origin: Origin
    task: Task

    def rejected(self, reason: str) -> Rejection:
        """For what the question is."""
        return self.origin.rejected(reason, self.task.question)


def _with_question(detail: str, question: str) -> str:
    return detail if question in detail else f"{detail}: {question}"
