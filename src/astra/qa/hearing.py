"""What a judge is asked of one instance in stage ``qa_valid``, and how its replies are taken.

A reply whose verdicts are for other sub-questions is asked for again, a bounded number of times;
each such try is kept. What a judge says against an instance is kept with its score.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeVar

from pydantic import BaseModel

from astra.llm.notes import PromptNotes
from astra.llm.protocol import Ask, ParseError, ProviderError, Teacher
from astra.qa.replies import CompletenessReport, Necessity, NecessityReport, StepReport, StepVerdict
from astra.records.qa import QAInstance
from astra.records.score import Rejection, Score, Scored, Unscored

TRIES = 3
"""Asks of one judgement whose ids do not fit (ASTRA release: 3)."""
NOT_APPLICABLE = "not applicable"
VERIFIERS = ("dependency", "atomicity", "sequential", "completeness")
Report = TypeVar("Report", bound=BaseModel)


class JudgeFailed(Exception):
    """No usable judgement: outage, or ids that do not fit after all tries."""

    def __init__(self, problem: str, attempt: int, said: str = "") -> None:
        """``attempt``: how many tries had failed before. ``said``: the reply that does not fit."""
        super().__init__(problem)
        self.attempt = attempt
        self.said = said


@dataclass(frozen=True)
class Opinion:
    """A verifier's score, and what it says against the instance."""

    score: Score
    against: str = ""
    attempt: int = 0
    """How many of its tries failed before an ask without a usable reply."""


class Hearing:
    """One instance before its judge: what is asked of it, and the tries that failed."""

    def __init__(self, instance: QAInstance, judge: Teacher) -> None:
        self.instance = instance
        self.notes = PromptNotes()
        self.tries: list[Rejection] = []
        self._judge = self.notes.of(judge)
        self._variables = judge_variables(instance)

    async def ask(self, name: str, model: type[Report], ids: set[int]) -> Report:
        """A report whose verdicts cover exactly ``ids``. Raises JudgeFailed."""
        problem = said = ""
        for sample in range(TRIES):
            if problem:
                self.tries.append(self._misfit(name, problem, said, sample - 1))
            try:
                found = await self._judge.ask(Ask(f"qa/{name}", self._variables, model, sample))
            except (ProviderError, ParseError) as error:
                raise JudgeFailed(str(error), sample) from None
            verdicts = getattr(found, "verdicts", None)
            if verdicts is None:
                return found
            stated = [verdict.id for verdict in verdicts]
            if sorted(stated) == sorted(ids):
                return found
            problem = f"verdicts for {stated}, asked for {sorted(ids)}"
            said = words(name, verdicts)
        raise JudgeFailed(problem, TRIES - 1, said)

    def _misfit(self, name: str, problem: str, said: str, attempt: int) -> Rejection:
        return Rejection(
            item=self.instance.id,
            part=name,
            reason="verdicts_do_not_fit",
            detail=problem,
            said=said,
            attempt=attempt,
            final=False,
        )

    async def necessity(self) -> dict[int, Necessity]:
        """The verdict on each step that is carried out. Raises JudgeFailed."""
        ids = {step.id for step in self.instance.sub_questions if step.bar is None}
        found = await self.ask("necessity", NecessityReport, ids)
        return {verdict.id: verdict for verdict in found.verdicts}

    async def opinion(self, name: str) -> Opinion:
        """What one of VERIFIERS makes of the instance."""
        steps = self.instance.sub_questions
        ids = {step.id for step in steps if name != "dependency" or step.dependencies}
        if not ids:
            return Opinion(Unscored(reason=NOT_APPLICABLE))
        try:
            if name == "completeness":
                return _whole(await self.ask(name, CompletenessReport, ids))
            verdicts = (await self.ask(name, StepReport, ids)).verdicts
        except JudgeFailed as error:
            return Opinion(Unscored(reason=str(error)), error.said, error.attempt)
        failed = [verdict for verdict in verdicts if not verdict.ok]
        score = Scored(value=fmean(float(verdict.ok) for verdict in verdicts))
        return Opinion(score, words(name, failed))


def _whole(found: CompletenessReport) -> Opinion:
    complete = found.complete and not found.missing
    against = f"completeness: missing {list(found.missing)}" if found.missing else ""
    if not complete and not against:
        against = "completeness: not complete"
    return Opinion(Scored(value=float(complete)), against)


def words(name: str, verdicts: Iterable[Necessity | StepVerdict]) -> str:
    """The reasons of verdicts, a line each."""
    return "\n".join(f"{name}, sub-question {one.id}: {one.reason}" for one in verdicts)


def judge_variables(instance: QAInstance) -> dict[str, Any]:
    """What every judge reads."""
    return {
        "domain": instance.domain,
        "language": instance.language,
        "kind": instance.kind.value,
        "main_question": instance.main_question,
        "final_answer": instance.final_answer.value,
        "steps": [
            {
                "id": step.id,
                "hop_level": step.hop_level,
                "question": step.question,
                "answer": step.answer.value,
                "dependencies": list(step.dependencies),
                "operation": step.operation.model_dump(mode="json") if step.operation else None,
                "bar": step.bar.value if step.bar else "",
            }
            for step in instance.sub_questions
        ],
    }
