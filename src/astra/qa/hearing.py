"""What a judge is asked of one instance in stage ``qa_valid``, and how its replies are taken.

A reply whose verdicts are for other sub-questions is asked for again, a bounded number of times;
each such try is kept. What a judge says against an instance is kept with its score.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
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
"""The reason of an Unscored where a verifier has nothing to judge."""
VERIFIERS = ("dependency", "atomicity", "sequential", "completeness")
"""The four verifiers of ASTRA section 4.1; each is a prompt of its name."""
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
    """How many of the verifier's tries had failed before it was left without a usable reply."""


class Hearing:
    """One instance before its judge: the asks about it, the tries that failed, the prompts used."""

    def __init__(self, instance: QAInstance, judge: Teacher) -> None:
        self.instance = instance
        self.notes = PromptNotes()
        self.tries: list[Rejection] = []
        self._judge = self.notes.of(judge)

    async def ask(self, name: str, model: type[Report], ids: set[int]) -> Report:
        """A report whose verdicts cover exactly ``ids``. Raises JudgeFailed."""
        problem = said = ""
        variables = judge_variables(self.instance, ids)
        for sample in range(TRIES):
            if problem:  # of the try before; that of the last try goes with JudgeFailed instead
                self.tries.append(self._misfit(name, problem, said, sample - 1))
            try:
                report = await self._judge.ask(Ask(f"qa/{name}", variables, model, sample))
            except (ProviderError, ParseError) as error:
                raise JudgeFailed(str(error), sample) from None
            verdicts = getattr(report, "verdicts", None)
            if verdicts is None:
                return report  # it judges the whole instance
            stated = [verdict.id for verdict in verdicts]
            if sorted(stated) == sorted(ids):
                return report
            problem = f"verdicts for {stated}, asked for {sorted(ids)}"
            said = reasons(name, verdicts)
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

    async def necessity(self, decided: Collection[int]) -> dict[int, Necessity]:
        """The verdict on each step that is carried out and not ``decided``. Raises JudgeFailed."""
        ids = {step.id for step in self.instance.sub_questions if step.bar is None} - set(decided)
        if not ids:
            return {}
        report = await self.ask("necessity", NecessityReport, ids)
        return {verdict.id: verdict for verdict in report.verdicts}

    async def opinion(self, name: str) -> Opinion:
        """The score that one of VERIFIERS gives the instance: the share of steps that it passes."""
        steps = self.instance.sub_questions
        # A step without dependencies has none to judge.
        ids = {step.id for step in steps if name != "dependency" or step.dependencies}
        if not ids:
            return Opinion(Unscored(reason=NOT_APPLICABLE))
        try:
            if name == "completeness":
                return _completeness(await self.ask(name, CompletenessReport, ids))
            verdicts = (await self.ask(name, StepReport, ids)).verdicts
        except JudgeFailed as error:
            return Opinion(Unscored(reason=str(error)), error.said, error.attempt)
        failed = [verdict for verdict in verdicts if not verdict.ok]
        score = Scored(value=fmean(float(verdict.ok) for verdict in verdicts))
        return Opinion(score, reasons(name, failed))


def _completeness(report: CompletenessReport) -> Opinion:
    """The opinion of a report on the whole; complete with something missing is not complete."""
    if report.missing:
        against = f"completeness: missing {list(report.missing)}"
        return Opinion(Scored(value=0.0), against)
    if not report.complete:
        return Opinion(Scored(value=0.0), "completeness: not complete")
    return Opinion(Scored(value=1.0))


def reasons(name: str, verdicts: Iterable[Necessity | StepVerdict]) -> str:
    """The reasons that verdicts give, a line each."""
    return "\n".join(f"{name}, sub-question {verdict.id}: {verdict.reason}" for verdict in verdicts)


def judge_variables(instance: QAInstance, asked: Iterable[int]) -> dict[str, Any]:
    """The variables of every judge's ask: the question, its steps and their answers.

    ``asked``: the ids of the steps that a verdict is wanted on.
    """
    return {
        "asked": sorted(asked),
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
