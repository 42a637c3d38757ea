"""Stage ``qa_valid``: tool necessity and the four verifiers (ASTRA section 4.1).

What holds of an instance by construction is recorded as such and not asked (construction.py); a
sample of ``audit_share`` is judged all the same. Necessity is judged for the steps that are carried
out; barred ones need no tool by definition.
Fail closed: a verifier that gave no usable reply leaves ``Unscored``, QS is then ``Unscored``,
and the instance is rejected. A verifier with nothing to judge (no dependencies) is
``Unscored(NOT_APPLICABLE)`` and stays out of the mean.

Which instances pass is decided when all are judged (selection.py). Rejections name an instance by
the id that it has in table ``qa``; judging gives it another one, as identity covers
``tool_necessity``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from pathlib import Path
from statistics import fmean

from astra.contamination.index import ContaminationIndex
from astra.llm.pool import map_bounded, sharded_flow
from astra.llm.protocol import Teacher
from astra.prompting import joined_hashes
from astra.qa import report
from astra.qa.config import QAValidConfig
from astra.qa.construction import audited, known
from astra.qa.gates import FreshQuestions, FreshSlots, Gate, OwnQuestions
from astra.qa.hearing import NOT_APPLICABLE, VERIFIERS, Hearing, JudgeFailed, reasons
from astra.qa.knowledge.operations import PLAIN_OPS
from astra.qa.replies import Necessity
from astra.qa.report import refusal_detail
from astra.qa.selection import QS, JudgedInstance, JudgedShelf
from astra.qa.variety import ShapeCounts
from astra.records.qa import QAInstance, SubQuestion
from astra.records.score import Rejection, Score, Scored, Unscored
from astra.store.metrics import StageMetrics


async def valid(
    instances: Iterable[QAInstance],
    judge: Teacher,
    config: QAValidConfig,
    open_items: int,
    metrics: StageMetrics,
) -> AsyncGenerator[QAInstance | Rejection, None]:
    """The judged instances that pass, and a rejection for each that does not.

    Raises ContaminationError before any judge is asked.
    """
    for name in ("sub_questions", "sub_questions_with_tool", "audited", "asks_saved"):
        metrics.count(name, 0)
    gates = _gates(config, metrics)
    with JudgedShelf() as shelf:
        async with aclosing(judge_all(instances, judge, config, open_items, metrics)) as outcomes:
            async for outcome in outcomes:
                if isinstance(outcome, JudgedInstance):
                    shelf.add(outcome)
                else:
                    yield outcome
        shapes = ShapeCounts()
        for outcome in shelf.select(config, gates):
            if isinstance(outcome, QAInstance):
                shapes.add(outcome)
            yield outcome
        metrics.value("shapes", shapes.largest_shares())


def _gates(config: QAValidConfig, metrics: StageMetrics) -> list[Gate]:
    gates: list[Gate] = []
    if config.contamination is not None:
        index = ContaminationIndex.load(Path(config.contamination))
        metrics.value("contamination_suites", index.about)
        gates.append(OwnQuestions(index))
    return [
        *gates, FreshQuestions(config.duplicate_similarity), FreshSlots(config.duplicate_slots),
    ]  # fmt: skip


def judge_all(
    instances: Iterable[QAInstance],
    judge: Teacher,
    config: QAValidConfig,
    open_items: int,
    metrics: StageMetrics,
) -> AsyncGenerator[JudgedInstance | Rejection, None]:
    """The outcomes of judging each instance, in order. Counts ``in`` and distribution ``qs``."""

    async def work(instance: QAInstance) -> list[JudgedInstance | Rejection]:
        outcomes = await judge_instance(instance, judge, config)
        metrics.count("in")
        metrics.count("audited", int(audited(instance, config)))
        metrics.count("asks_saved", known(instance, config).asks_saved(instance))
        last = outcomes[-1]
        if isinstance(last, JudgedInstance) and isinstance(
            score := last.instance.scores[QS], Scored
        ):
            metrics.distribution("qs", [f"{score.value:.2f}"])
        return outcomes

    return sharded_flow(instances, work, open_items)


async def judge_instance(
    instance: QAInstance, judge: Teacher, config: QAValidConfig
) -> list[JudgedInstance | Rejection]:
    """The judged instance or why it cannot pass, after the failed tries of single asks."""
    hearing = Hearing(instance, judge)
    outcome = await _judge(hearing, config)
    # The verifiers run together, so their tries come in any order.
    tries = sorted(hearing.tries, key=lambda rejection: (rejection.part, rejection.attempt))
    return [*tries, outcome]


async def _judge(hearing: Hearing, config: QAValidConfig) -> JudgedInstance | Rejection:
    """Necessity first; the verifiers, which do not depend on each other, together."""
    instance = hearing.instance
    given = known(instance, config)
    try:
        needs = {**given.needs, **await hearing.necessity(given.needs)}
    except JudgeFailed as error:
        return Rejection(
            item=instance.id,
            part="necessity",
            reason="judge_failed",
            detail=f"necessity: {error}",
            said=error.said,
            attempt=error.attempt,
        )
    refused = _unneeded(instance, needs, config)
    if refused is not None:
        return refused
    open_ones = [name for name in VERIFIERS if name not in given.scores]
    async with aclosing(map_bounded(open_ones, hearing.opinion, len(VERIFIERS))) as judged:
        opinions = dict(zip(open_ones, [opinion async for opinion in judged], strict=True))
    marks = {**given.scores, **{name: opinion.score for name, opinion in opinions.items()}}
    scores = {name: marks[name] for name in VERIFIERS}
    score = quality(scores)
    against = "\n".join(opinion.against for opinion in opinions.values() if opinion.against)
    if isinstance(score, Unscored):
        return Rejection(
            item=instance.id,
            reason="unscored",
            detail=refusal_detail(score.reason, instance),
            said=against,
            attempt=max((opinion.attempt for opinion in opinions.values()), default=0),
        )
    scored = _with_verdicts(hearing, needs, {**scores, QS: score})
    return JudgedInstance(item=instance.id, instance=scored, against=against)


def _with_verdicts(
    hearing: Hearing, needs: dict[int, Necessity], scores: dict[str, Score]
) -> QAInstance:
    """The instance as judged, with the id that it then has: identity covers sub-questions."""
    instance = hearing.instance
    steps = tuple(
        step.model_copy(update={"tool_necessity": step.id in needs and needs[step.id].needs_tool})
        for step in instance.sub_questions
    )
    fields = {name: getattr(instance, name) for name in QAInstance.model_fields if name != "id"}
    return QAInstance.model_validate(
        {
            **fields,
            "sub_questions": steps,
            "scores": scores,
            "prompt_hash": joined_hashes(instance.prompt_hash, hearing.notes.prompt_hash),
        }
    )


def _unneeded(
    instance: QAInstance, needs: dict[int, Necessity], config: QAValidConfig
) -> Rejection | None:
    """Why the verdicts on necessity leave no instance, if they do."""

    def refused(reason: str, why: str, verdicts: Iterable[Necessity]) -> Rejection:
        detail, said = refusal_detail(why, instance), reasons("necessity", verdicts)
        return Rejection(item=instance.id, reason=reason, detail=detail, said=said)

    if (step := _conflict(instance.sub_questions, needs)) is not None:
        judged = needs[step.id]
        op = step.operation.op if step.operation else ""
        why = f"{step.id} ({op}): judge says {judged.needs_tool}, rule {not judged.needs_tool}"
        return refused("necessity_conflict", why, [judged])
    if not any(verdict.needs_tool for verdict in needs.values()):
        return refused("no_tool_needed", "", needs.values())
    if config.allow_plain_dependencies:
        return None
    used = {id for step in instance.sub_questions for id in step.dependencies}
    idle = sorted(step for step in used if step not in needs or not needs[step].needs_tool)
    if not idle:
        return None
    why = f"others depend on {idle}, which need no tool"
    return refused("necessity_illegitimate", why, [needs[step] for step in idle if step in needs])


def _conflict(steps: Sequence[SubQuestion], needs: dict[int, Necessity]) -> SubQuestion | None:
    """The first step on which judge and rule disagree, if there is one.

    The rule: look-ups and calculations need a tool, comparisons do not.
    """
    for step in steps:
        if step.operation is None or step.bar is not None:
            continue
        if (step.operation.op not in PLAIN_OPS) != needs[step.id].needs_tool:
            return step
    return None


def quality(scores: dict[str, Score]) -> Score:
    """QS: the mean of the verifiers that apply; Unscored if any of those has no score."""
    values = [score.value for score in scores.values() if isinstance(score, Scored)]
    failed = [
        f"{name}: {score.reason}"
        for name, score in scores.items()
        if isinstance(score, Unscored) and score.reason != NOT_APPLICABLE
    ]
    if failed:
        return Unscored(reason="; ".join(failed))
    return Scored(value=fmean(values)) if values else Unscored(reason="nothing was measured")


def measure(metrics: StageMetrics, instance: QAInstance) -> None:
    """Add one instance that passes to the stage's counts and distributions."""
    report.measure(metrics, instance)
    needs = [step.tool_necessity for step in instance.sub_questions]
    metrics.count("sub_questions", len(needs))
    metrics.count("sub_questions_with_tool", needs.count(True))
