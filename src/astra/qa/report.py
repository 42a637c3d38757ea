"""Counts and distributions of stages ``qa`` and ``qa_valid`` while their rows stream by."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

from astra.contamination.index import ContaminationIndex
from astra.qa.config import QAValidConfig
from astra.qa.gates import Gate, OwnQuestions
from astra.qa.generate import describe
from astra.qa.validate import QS, select
from astra.records.qa import QAInstance
from astra.records.score import Rejection, Scored
from astra.stage import Progress, blocking
from astra.store.metrics import StageMetrics

log = logging.getLogger("astra")
Outcome = QAInstance | Rejection


def accepted(
    outcomes: Iterable[Outcome], metrics: StageMetrics, progress: Progress
) -> Iterator[QAInstance]:
    """The instances among ``outcomes``; rejections are counted by reason."""
    for outcome in outcomes:
        metrics.count("in")
        if isinstance(outcome, Rejection):
            drop(outcome, metrics)
            progress.drop(outcome.reason)
        else:
            describe_out(outcome, metrics)
            progress.advance()
            yield outcome


def validated(
    outcomes: AsyncIterator[Outcome],
    config: QAValidConfig,
    metrics: StageMetrics,
    progress: Progress,
) -> list[QAInstance]:
    """Instances that all verifiers scored and the threshold and every gate let pass.

    All instances are held: a percentile is known only when every score is.
    """
    gates: list[Gate] = []
    if config.contamination is not None:
        index = ContaminationIndex.load(Path(config.contamination))
        metrics.value("contamination_suites", index.about)
        gates.append(OwnQuestions(index))
    judged: list[QAInstance] = []
    for outcome in blocking(outcomes):
        metrics.count("in")
        if isinstance(outcome, Rejection):
            drop(outcome, metrics)
            progress.drop(outcome.reason)
        else:
            judged.append(outcome)
            progress.advance()
    kept, rejections = select(judged, config, gates)
    for rejection in rejections:
        drop(rejection, metrics)
    for instance in kept:
        describe_out(instance, metrics)
    for instance in judged:
        score = instance.scores[QS]
        if isinstance(score, Scored):
            metrics.distribution("qs", [f"{score.value:.2f}"])
    needs = [step.tool_necessity for instance in kept for step in instance.sub_questions]
    metrics.count("sub_questions", len(needs))
    metrics.count("sub_questions_with_tool", sum(bool(need) for need in needs))
    return kept


def drop(rejection: Rejection, metrics: StageMetrics) -> None:
    """Count a rejection; the first of each reason is logged as its example."""
    if rejection.reason not in metrics.dropped:
        log.info("dropped (%s): %s %s", rejection.reason, rejection.item, rejection.detail)
    metrics.reject(rejection)


def describe_out(instance: QAInstance, metrics: StageMetrics) -> None:
    metrics.count("out")
    metrics.count(f"out_{instance.split}")
    for name, value in describe(instance).items():
        metrics.distribution(name, [value])
    metrics.distribution(f"scenario_{instance.split}", [instance.scenario])
