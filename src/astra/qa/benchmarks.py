"""A gate of stage ``qa_valid``: no question may share a text with a benchmark suite."""

from __future__ import annotations

from pathlib import Path

from astra.contamination.index import ContaminationIndex
from astra.qa.config import QAValidConfig
from astra.qa.gates import Gate
from astra.records.qa import QAInstance
from astra.records.score import Rejection
from astra.store.metrics import StageMetrics


class BenchmarkText:
    """Refuses an instance whose main question or a sub-question has an n-gram of a suite."""

    def __init__(self, index: ContaminationIndex) -> None:
        self._index = index

    def __call__(self, instance: QAInstance) -> Rejection | None:
        asked = [instance.main_question, *(step.question for step in instance.sub_questions)]
        overlap = self._index.shared_text(asked)
        if overlap is None:
            return None
        detail = f"{overlap.suite}, {overlap.share:.2f}: {instance.main_question}"
        return Rejection(item=instance.id, reason="contaminated_text", detail=detail)


def benchmark_gates(config: QAValidConfig, metrics: StageMetrics) -> list[Gate]:
    """The gate of the configured index, whose suites are told in the metrics; none if off."""
    if config.contamination is None:
        return []
    index = ContaminationIndex.load(Path(config.contamination))
    metrics.value("contamination_suites", index.about)
    return [BenchmarkText(index)]
