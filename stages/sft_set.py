"""Stage sft_set: seven-dimension scores, selection, train/eval split (ASTRA section 3.4)."""

from astra.data_stage import data_stage
from astra.estimate.episodes import episodes_of
from astra.records.task import Task
from astra.records.trajectory import SFTSample, Trajectory
from astra.scoring.config import SFTSetConfig
from astra.scoring.estimate import grade_asks
from astra.scoring.families import Families
from astra.scoring.offline.handlers import HANDLERS
from astra.scoring.sft_set import Statistics, sft_set
from astra.stage import run_stage


def main() -> None:
    with data_stage("sft_set", SFTSetConfig) as stage:
        stage.expect(lambda: grade_asks(stage.config, episodes_of(stage.table("trajectories"))))
        stage.follow("trajectories", stage.count("trajectories"))
        families = stage.enter(Families(stage.read("tasks", Task)))
        judge = stage.teacher(stage.config.judge, HANDLERS)
        outcomes = sft_set(
            lambda: stage.read("trajectories", Trajectory),
            judge,
            families,
            stage.config,
            stage.open_items,
            stage.metrics,
        )
        statistics = Statistics()
        stage.write(outcomes, SFTSample, statistics.measure)
        statistics.finish(stage.metrics)


if __name__ == "__main__":
    run_stage("sft_set", main)
