"""Questions that a benchmark suite has, too, are refused and counted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from astra.contamination.index import ContaminationIndex
from astra.contamination.suites import Suite
from astra.qa.benchmarks import BenchmarkText, benchmark_gates
from astra.qa.report import validated
from astra.qa.validate import QS
from astra.records.qa import QAInstance
from astra.records.score import Scored
from astra.stage import Progress
from astra.store.metrics import StageMetrics


def test_a_question_of_a_suite_is_a_counted_rejection(
    documents: Any, build: Any, valid_config: Any, tmp_path: Path
) -> None:
    marked = {"scores": {QS: Scored(value=1.0)}}
    rows = [build(documents[name]()).model_copy(update=marked) for name in ("chain", "comparison")]
    first, second = rows
    step = next(s.question for s in second.sub_questions if len(s.question.split()) >= 6)
    path = tmp_path / "index.parquet"

    def kept(texts: set[str]) -> tuple[list[QAInstance], StageMetrics]:
        ContaminationIndex.of([Suite("known", texts=texts)]).save(path)
        config, metrics = valid_config(contamination=str(path)), StageMetrics("qa_valid")

        async def outcomes() -> AsyncIterator[QAInstance]:
            for row in rows:
                yield row

        gates = benchmark_gates(config, metrics)
        return validated(outcomes(), config, metrics, Progress("judged"), gates), metrics

    passed, metrics = kept({"Something that nobody has asked of any boat so far, ever."})
    assert len(passed) == 2
    assert metrics.dropped == {}
    assert metrics.values["contamination_suites"]["known"]["texts"] == 1
    # A main question, in other letters; then a sub-question.
    passed, metrics = kept({first.main_question.upper()})
    assert [one.id for one in passed] == [second.id]
    assert metrics.dropped == {"contaminated_text": 1}
    passed, metrics = kept({step})
    assert second.id not in {one.id for one in passed}
    assert metrics.dropped["contaminated_text"] >= 1


def test_the_check_can_be_off_and_names_the_suite(
    documents: Any, build: Any, valid_config: Any
) -> None:
    metrics = StageMetrics("qa_valid")
    assert benchmark_gates(valid_config(contamination=None), metrics) == []
    assert metrics.values == {}
    row = build(documents["chain"]())
    gate = BenchmarkText(ContaminationIndex.of([Suite("known", texts={row.main_question})]))
    refused = gate(row)
    assert refused is not None
    assert refused.detail.startswith("known, ")
