"""What stages ``qa`` and ``qa_valid`` count, plot and tell of questions."""

from __future__ import annotations

from collections.abc import Mapping

from astra.qa.replies import Decomposition
from astra.records.qa import QAInstance
from astra.store.metrics import StageMetrics


def measure(metrics: StageMetrics, instance: QAInstance) -> None:
    """Add one instance that leaves a stage to its counts and distributions."""
    metrics.count("out")
    metrics.count(f"out_{instance.split}")
    for name, value in describe(instance).items():
        metrics.distribution(name, [value])
    metrics.distribution(f"scenario_{instance.split}", [instance.scenario])


def describe(instance: QAInstance) -> Mapping[str, object]:
    """What the stages plot."""
    return {
        "split": instance.split,
        "scenario": instance.scenario,
        "hops": max(step.hop_level for step in instance.sub_questions),
        "sub_questions": len(instance.sub_questions),
        "domain": instance.domain,
        "source": instance.source,
        "language": instance.language,
        "kind": instance.kind,
        "final_answer_type": instance.final_answer.type,
    }


def told(why: str, asked: QAInstance | Decomposition) -> str:
    """Why a question is refused, and the question with its sub-questions and their answers."""
    steps = (f"{step.id}. {step.question} {step.answer.value}" for step in asked.sub_questions)
    whole = f"{asked.main_question} {asked.final_answer.value}"
    return " | ".join([part for part in (why, whole, *steps) if part])
