"""Stage qa: decomposed questions from knowledge sources (ASTRA section 4.1)."""

from astra.data_stage import data_stage
from astra.qa.config import QAConfig
from astra.qa.estimate import question_asks
from astra.qa.offline.handlers import HANDLERS
from astra.qa.qa import QuestionWriter, instances
from astra.qa.report import measure
from astra.records.qa import QAInstance
from astra.stage import run_stage


def main() -> None:
    with data_stage("qa", QAConfig) as stage:
        teacher = stage.teacher(stage.config.teacher, HANDLERS)
        writer = QuestionWriter(stage.config)
        stage.expect(lambda: question_asks(stage.config, writer.requested))
        stage.follow("in", writer.total(), "questions")
        outcomes = instances(writer, teacher, stage.open_items, stage.metrics)
        stage.write(outcomes, QAInstance, measure)
        stage.metrics.value("compositions_owned", writer.composition_counts())
        stage.metrics.value("corpora", writer.corpora)


if __name__ == "__main__":
    run_stage("qa", main)
