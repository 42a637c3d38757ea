"""Stage qa_valid: tool necessity, four verifiers, quality threshold (ASTRA section 4.1)."""

from astra.data_stage import data_stage
from astra.estimate.questions import questions_of
from astra.qa.config import QAValidConfig
from astra.qa.estimate import verdict_asks
from astra.qa.offline.handlers import HANDLERS
from astra.qa.qa_valid import measure, valid
from astra.records.qa import QAInstance
from astra.stage import run_stage


def main() -> None:
    with data_stage("qa_valid", QAValidConfig) as stage:
        stage.expect(lambda: verdict_asks(stage.config, questions_of(stage.table("qa"))))
        stage.follow("in", stage.count("qa"), "judged")
        instances = stage.read("qa", QAInstance)
        judge = stage.teacher(stage.config.judge, HANDLERS)
        outcomes = valid(instances, judge, stage.config, stage.open_items, stage.metrics)
        stage.write(outcomes, QAInstance, measure)


if __name__ == "__main__":
    run_stage("qa_valid", main)
