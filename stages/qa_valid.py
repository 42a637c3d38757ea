"""Stage qa_valid: tool necessity, four verifiers, quality threshold (ASTRA section 4.1)."""

from pathlib import Path

from astra.llm.build import build_teacher
from astra.qa.config import QAValidConfig
from astra.qa.offline import HANDLERS
from astra.qa.report import validated
from astra.qa.validate import judge_all
from astra.records.qa import QAInstance
from astra.settings import RuntimeConfig, load
from astra.stage import Progress, run_stage
from astra.store.metrics import StageMetrics
from astra.store.tables import count_records, read_records, write_records


def main() -> None:
    config = load("qa_valid", QAValidConfig)
    runtime = load("runtime", RuntimeConfig)
    metrics = StageMetrics("qa_valid")
    judge = build_teacher(config.judge, runtime, HANDLERS, "qa_valid")
    source = Path("data/qa.parquet")
    instances = read_records(source, QAInstance)
    progress = Progress("judged", count_records(source))
    outcomes = judge_all(instances, config, judge, runtime.concurrency)
    kept = validated(outcomes, config, metrics, progress)
    write_records(Path("data/qa_valid.parquet"), kept, QAInstance)
    progress.close()
    metrics.write()


if __name__ == "__main__":
    run_stage("qa_valid", main)
