"""Stage qa: decomposed questions from knowledge sources (ASTRA section 4.1)."""

from astra.data_stage import data_stage
from astra.qa.config import QAConfig
from astra.qa.offline.handlers import HANDLERS
from astra.qa.qa import QuestionWriter, questions
from astra.qa.report import measure
from astra.records.qa import QAInstance
from astra.stage import run_stage


def main() -> None:
    with data_stage("qa", QAConfig) as stage:
        teacher = stage.teacher(stage.config.teacher, HANDLERS)
        generator = QuestionWriter(stage.config)
        stage.follow("in", generator.total(), "questions")
        outcomes = questions(generator, teacher, stage.open_items, stage.metrics)
        stage.write(outcomes, QAInstance, measure)
        stage.metrics.value("compositions_owned", generator.composition_counts())


if __name__ == "__main__":
    run_stage("qa", main)
