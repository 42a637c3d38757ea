"""Stage ``qa_valid``: tool necessity and the four verifiers (ASTRA section 4.1).

Necessity is judged of the steps that are carried out; barred ones need no tool by definition.
Fail closed: a verifier that gave no usable reply leaves ``Unscored``, QS is then ``Unscored``,
and the instance is rejected. A verifier with nothing to judge (no dependencies) is
``Unscored(NOT_APPLICABLE)`` and stays out of the mean.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from statistics import fmean
from typing import Any, TypeVar

from pydantic import BaseModel

from astra.llm.notes import PromptNotes
from astra.llm.pool import map_bounded
from astra.llm.protocol import Ask, ParseError, ProviderError, Teacher
from astra.prompting import joined_hashes
from astra.qa.config import QAValidConfig, Threshold
from astra.qa.gates import FreshQuestions, Gate
from astra.qa.operations import PLAIN_OPS
from astra.qa.replies import CompletenessReport, NecessityReport, StepReport
from astra.records.qa import QAInstance, SubQuestion
from astra.records.score import Rejection, Score, Scored, Unscored

TRIES = 3
"""Asks of one judgement whose ids do not fit (ASTRA release: 3)."""
NOT_APPLICABLE = "not applicable"
QS = "qs"
Report = TypeVar("Report", bound=BaseModel)
Outcome = QAInstance | Rejection


class JudgeFailed(Exception):
    """No usable judgement: outage, or ids that do not fit after all tries."""


async def judge_all(
    instances: Iterable[QAInstance], config: QAValidConfig, judge: Teacher, concurrency: int
) -> AsyncIterator[Outcome]:
    """Necessity and scores of each instance, in order; rejections where either fails."""

    async def work(instance: QAInstance) -> Outcome:
        return await judge_instance(instance, config, judge)

    async for outcome in map_bounded(instances, work, concurrency):
        yield outcome


async def judge_instance(instance: QAInstance, config: QAValidConfig, judge: Teacher) -> Outcome:
    """The instance with ``tool_necessity`` and ``scores`` set, or why it cannot pass."""
    variables = judge_variables(instance)
    notes = PromptNotes()
    judge = notes.of(judge)
    try:
        needs = await _necessity(instance, variables, judge)
    except JudgeFailed as error:
        return Rejection(item=instance.id, reason="judge_failed", detail=f"necessity: {error}")
    conflict = _conflict(instance.sub_questions, needs)
    if conflict:
        return Rejection(item=instance.id, reason="necessity_conflict", detail=conflict)
    if not any(needs.values()):
        return Rejection(item=instance.id, reason="no_tool_needed")
    if not config.allow_plain_dependencies:
        used = {d for step in instance.sub_questions for d in step.dependencies}
        if idle := sorted(step for step in used if not needs.get(step)):
            detail = f"others depend on {idle}, which need no tool"
            return Rejection(item=instance.id, reason="necessity_illegitimate", detail=detail)
    scores = await _scores(instance, variables, judge)
    score = quality(scores)
    if isinstance(score, Unscored):
        return Rejection(item=instance.id, reason="unscored", detail=score.reason)
    steps = tuple(
        step.model_copy(update={"tool_necessity": needs.get(step.id, False)})
        for step in instance.sub_questions
    )
    # Identity covers the sub-questions, so the id is made anew.
    fields = {name: getattr(instance, name) for name in QAInstance.model_fields if name != "id"}
    return QAInstance.model_validate(
        {
            **fields,
            "sub_questions": steps,
            "scores": {**scores, QS: score},
            "prompt_hash": joined_hashes(instance.prompt_hash, notes.prompt_hash),
        }
    )


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


async def _ask(
    template: str, variables: dict[str, Any], model: type[Report], judge: Teacher, ids: set[int]
) -> Report:
    """A report whose verdicts cover exactly ``ids``. Raises JudgeFailed."""
    problem = ""
    for sample in range(TRIES):
        try:
            report = await judge.ask(Ask(template, variables, model, sample))
        except (ProviderError, ParseError) as error:
            raise JudgeFailed(str(error)) from None
        verdicts = getattr(report, "verdicts", None)
        if verdicts is None:
            return report
        stated = [verdict.id for verdict in verdicts]
        if sorted(stated) == sorted(ids):
            return report
        problem = f"verdicts for {stated}, asked for {sorted(ids)}"
    raise JudgeFailed(problem)


async def _necessity(
    instance: QAInstance, variables: dict[str, Any], judge: Teacher
) -> dict[int, bool]:
    ids = {step.id for step in instance.sub_questions if step.bar is None}
    report = await _ask("qa/necessity", variables, NecessityReport, judge, ids)
    return {verdict.id: verdict.needs_tool for verdict in report.verdicts}


def _conflict(steps: Sequence[SubQuestion], needs: dict[int, bool]) -> str:
    """Where judge and rule disagree: look-ups and calculations need a tool, comparisons do not."""
    for step in steps:
        if step.operation is None or step.bar is not None:
            continue
        rule = step.operation.op not in PLAIN_OPS
        if rule != needs[step.id]:
            return f"{step.id} ({step.operation.op}): judge says {needs[step.id]}, rule {rule}"
    return ""


async def _scores(
    instance: QAInstance, variables: dict[str, Any], judge: Teacher
) -> dict[str, Score]:
    ids = {step.id for step in instance.sub_questions}
    dependent = {step.id for step in instance.sub_questions if step.dependencies}
    scores: dict[str, Score] = {}
    for name, wanted in (("dependency", dependent), ("atomicity", ids), ("sequential", ids)):
        if not wanted:
            scores[name] = Unscored(reason=NOT_APPLICABLE)
            continue
        try:
            report = await _ask(f"qa/{name}", variables, StepReport, judge, wanted)
        except JudgeFailed as error:
            scores[name] = Unscored(reason=str(error))
            continue
        scores[name] = Scored(value=fmean(float(verdict.ok) for verdict in report.verdicts))
    try:
        whole = await _ask("qa/completeness", variables, CompletenessReport, judge, ids)
        scores["completeness"] = Scored(value=float(whole.complete and not whole.missing))
    except JudgeFailed as error:
        scores["completeness"] = Unscored(reason=str(error))
    return scores


def quality(scores: dict[str, Score]) -> Score:
    """QS: the mean of the verifiers that apply; Unscored if any of those has no score."""
    values: list[float] = []
    for name, score in scores.items():
        if isinstance(score, Scored):
            values.append(score.value)
        elif score.reason != NOT_APPLICABLE:
            return Unscored(reason=f"{name}: {score.reason}")
    return Scored(value=fmean(values)) if values else Unscored(reason="nothing was measured")


def select(
    instances: Sequence[QAInstance], config: QAValidConfig, gates: Sequence[Gate] = ()
) -> tuple[list[QAInstance], list[Rejection]]:
    """Drop what lies below the threshold, then what a gate refuses: near-duplicates, and before
    them what ``gates`` know of. In order of id: of two near-duplicates the lowest is kept.
    """
    rejections: list[Rejection] = []
    measured: list[tuple[float, QAInstance]] = []
    for instance in sorted(instances, key=lambda instance: instance.id):
        score = instance.scores.get(QS)
        if isinstance(score, Scored):
            measured.append((score.value, instance))
        else:
            rejections.append(Rejection(item=instance.id, reason="unscored"))
    floor = cut_off([value for value, _ in measured], config.threshold)
    every = (*gates, FreshQuestions(config.duplicate_similarity))
    kept: list[QAInstance] = []
    for value, instance in measured:
        refusal = None
        if value < floor:
            detail = f"QS {value:.3f} < {floor:.3f}: {_lowest(instance)}"
            refusal = Rejection(item=instance.id, reason="low_quality", detail=detail)
        for gate in every:
            refusal = refusal or gate(instance)
        if refusal is None:
            kept.append(instance)
        else:
            rejections.append(refusal)
    return kept, rejections


def cut_off(values: Sequence[float], threshold: Threshold) -> float:
    """The least QS that passes; of a percentile, the value at that rank (ties pass)."""
    if threshold.kind == "absolute" or not values:
        return threshold.value if threshold.kind == "absolute" else 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * threshold.value / 100.0))]


def _lowest(instance: QAInstance) -> str:
    measured = {n: s.value for n, s in instance.scores.items() if isinstance(s, Scored) and n != QS}
    return ", ".join(f"{name} {value:.2f}" for name, value in sorted(measured.items()))
