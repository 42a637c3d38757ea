"""What stages ``qa`` and ``qa_valid`` say of questions: counts, distributions, refusals."""

from __future__ import annotations

from collections.abc import Mapping

from astra.qa.replies import Wording
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
    """The properties of an instance that the stages plot."""
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


def refusal_detail(why: str, asked: QAInstance | Wording) -> str:
    """Why a question is refused, then the question and its sub-questions.

    An instance's have their answers.
    """
    if isinstance(asked, Wording):
        question, steps = (
            asked.main_question,
            [f"{s.id}. {s.question}" for s in asked.sub_questions],
        )
    else:
        question = f"{asked.main_question} {asked.final_answer.value}"
        steps = [f"{s.id}. {s.question} {s.answer.value}" for s in asked.sub_questions]
    return " | ".join([part for part in (why, question, *steps) if part])
