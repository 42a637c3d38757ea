"""Stage qa: decomposed questions from knowledge sources (ASTRA section 4.1)."""

from pathlib import Path

from astra.llm.build import build_teacher
from astra.qa.config import QAConfig
from astra.qa.generate import Generator
from astra.qa.offline import HANDLERS
from astra.qa.report import accepted
from astra.records.qa import QAInstance
from astra.settings import RuntimeConfig, load
from astra.stage import Progress, blocking, run_stage
from astra.store.metrics import StageMetrics
from astra.store.tables import write_records


def main() -> None:
    config = load("qa", QAConfig)
    runtime = load("runtime", RuntimeConfig)
    metrics = StageMetrics("qa")
    teacher = build_teacher(config.teacher, runtime, HANDLERS, "qa")
    generator = Generator(config)
    progress = Progress("questions", generator.total())
    outcomes = blocking(generator.run(teacher, runtime.concurrency))
    write_records(Path("data/qa.parquet"), accepted(outcomes, metrics, progress), QAInstance)
    progress.close()
    metrics.value("compositions_owned", generator.composition_counts())
    metrics.write()


if __name__ == "__main__":
    run_stage("qa", main)
