"""Groups, RoC, figures, the k/k filter and phases, over rollouts made by hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from training_world import make_arena

from astra.arena.reward import EpisodeScore
from astra.records.environment import Trait
from astra.records.message import (
    CallStatus,
    ExecutedCall,
    Message,
    MessageRole,
    ToolCall,
    ToolResult,
)
from astra.records.qa import QuestionKind
from astra.records.trajectory import StopReason
from astra.rollout.engine import Sampling
from astra.rollout.live import EpisodeJob, Rollout
from astra.store.metrics import StageMetrics
from astra.train.collector import BatchCollector, Trouble
from astra.train.curves import Curves
from astra.train.errors import TrainingError
from astra.train.exchange import Exchange
from astra.train.groups import Group, GroupRoller, PromptStream, mean_figures, rollout_figures
from astra.train.rl import Arenas, RLResult, report_rl
from astra.train.rl_config import RLBand, RLConfig
from astra.train.schedule import ARENAS_AT_ONCE, Passes, in_band, passes_of, phases
from astra.train.watch import _note
from configs import engine_options, rl_config


def rollout(job: EpisodeJob, reward: float | None, failed: int = 0, calls: int = 2) -> Rollout:
    """Answered, with ``failed`` of ``calls`` failed; reward None: lost to our machinery."""
    call = ToolCall(id="c", name="f", arguments="{}")
    made = tuple(
        ExecutedCall(
            turn=0,
            call=call,
            result=ToolResult(
                status=CallStatus.ERROR if at < failed else CallStatus.OK, content="x"
            ),
        )
        for at in range(calls)
    )
    score = None
    if reward is not None:
        score = EpisodeScore(
            subtasks=1, solved=int(reward), calls=calls, recall=reward, precision=reward, f1=reward,
            answer_correct=reward == 1, success=reward == 1, reward=reward,
        )  # fmt: skip
    messages = (Message(role=MessageRole.ASSISTANT, content="<answer>1</answer>"),)
    return Rollout(
        job.arena, [1, 2], 7, [3, 4], [1, 1], [-1.0, -1.0], messages, made,
        StopReason.INFRA if score is None else StopReason.ANSWERED, score,
        problem="no room in time" if score is None else "",
    )  # fmt: skip


class ScriptedDriver:
    """Rewards in order, over and over."""

    def __init__(self, rewards: Sequence[tuple[float | None, int]]) -> None:
        self.rewards = rewards
        self.infra_retries, self.tool_seconds, self.tool_calls = 0, 0.0, 0
        self.runs: list[int] = []
        self.version = -1
        self.retries_a_run = 0
        self.fail_after: int | None = None

    def weights_are(self, version: int) -> None:
        self.version = version

    def run(self, jobs: Sequence[EpisodeJob], sampling: Sampling) -> list[Rollout]:
        if self.fail_after is not None and len(self.runs) >= self.fail_after:
            raise KeyboardInterrupt
        self.runs.append(len(jobs))
        self.infra_retries += self.retries_a_run
        return [rollout(job, *self.rewards[at % len(self.rewards)]) for at, job in enumerate(jobs)]


UNSOLVED = RLBand(rollouts=3, most=2)
VLLM = engine_options("vllm")


def config(**options: object) -> RLConfig:
    return rl_config(**({"group_size": 4, "groups": 2} | options))


def test_twice_as_many_are_rolled_and_the_group_kept_is_whole_before_the_trainer_sees_it() -> None:
    # 5 positives with penalties 1, 0, .5, 0, .5 and 3 negatives: floor(3 * 4 / 8) = 1 stays
    rewards = [(1.0, 2), (1.0, 0), (0.0, 0), (1.0, 1), (0.0, 1), (1.0, 0), (0.0, 2), (1.0, 1)]
    driver = ScriptedDriver(rewards)
    (group,) = GroupRoller(driver, config(roc={"mode": "sort"})).roll([(0, make_arena(1))], 3)
    assert driver.runs == [8]
    assert sorted(sample.reward for sample in group.samples) == [0.0, 1.0, 1.0, 1.0]
    kept = [one for one in group.rollouts if one.score and one.score.reward]
    assert [sum(c.result.status != CallStatus.OK for c in one.calls) for one in kept] == [0, 1, 0]
    assert group.figures["reward"] == 5 / 8, "figures describe all that was rolled"
    assert group.figures["tool_errors_in_positives"] == pytest.approx(2 / 5)
    assert group.bare == replace(group, rollouts=[]), "transcripts are never sent between ranks"


def test_what_infrastructure_lost_is_never_a_zero() -> None:
    driver = ScriptedDriver([(None, 0), (1.0, 0), (0.0, 0), (1.0, 0)])
    roller = GroupRoller(driver, config())
    assert roller.roll([(0, make_arena(1))], 3) == []
    assert (roller.lost_to_infra, roller.problem) == (1, "no room in time")


def test_lost_groups_are_replaced_counted_and_in_the_end_named() -> None:
    arenas = [make_arena(seed) for seed in range(9)]

    def collector(rewards: Sequence[tuple[float | None, int]]) -> BatchCollector:
        driver = ScriptedDriver(rewards)
        driver.retries_a_run = 2
        settings = config(max_rounds=1)
        stream = PromptStream(arenas, 0)
        return BatchCollector(GroupRoller(driver, settings), stream, settings, Exchange(60))

    # of each two groups of four the second is lost
    one = collector([(1.0, 0), (0.0, 0), (1.0, 0), (0.0, 0), (None, 0), (1.0, 0), (0.0, 0), (0, 0)])
    collected = one.batch(0)
    assert (collected.filled.informative, collected.filled.rounds) == (2, 2)
    assert collected.trouble == Trouble(retries=4, lost=1, problem="no room in time")
    assert one.trouble == collected.trouble
    state = one.state()
    again = collector([(1.0, 0), (0.0, 0)])
    again.restore(state)
    assert (again.state(), again.trouble) == (state, one.trouble)

    with pytest.raises(
        TrainingError,
        match=r"step 5: only 0 of 2 .* lost 6 groups after 6 episodes .*: no room in time",
    ):
        collector([(None, 0)]).batch(5)


def test_rewards_of_a_batch_are_of_every_group_that_was_rolled_for_it() -> None:
    """Of three groups two carry signal and are the batch; nothing was ever solved in the third."""
    driver = ScriptedDriver([(1.0, 0), (0.0, 0)] * 2 + [(0.0, 0)] * 4 + [(1.0, 0), (0.0, 0)] * 2)
    stream, settings = PromptStream([make_arena(seed) for seed in range(9)], 0), config()
    one = BatchCollector(GroupRoller(driver, settings), stream, settings, Exchange(60))
    one.filler.rate = 2 / 3
    collected = one.batch(0)
    assert collected.filled.rolled == 3
    assert mean_figures(collected.filled.groups)["reward"] == 0.5
    assert collected.rewards == [0.5, 0.0, 0.5]


def test_what_was_rolled_again_is_told() -> None:
    logs = {"loss": 0.5, "filling/infra_retries": 3.0, "filling/lost_to_infra": 1.0}
    assert _note(logs) == "loss 0.500, 3 episodes rolled again, 1 groups lost"
    assert _note({"loss": 0.5, "filling/infra_retries": 0.0}) == "loss 0.500"
    for trouble, told in (
        (Trouble(3, 1, "no room"), {"infra_retries": 3, "groups_lost_to_infra": 1}),
        (Trouble(), {}),
    ):
        metrics = StageMetrics("rl")
        report_rl(metrics, Arenas(), RLResult(2, Curves(), False, trouble=trouble))
        assert {name: n for name, n in metrics.counts.items() if "infra" in name} == told


def test_a_hand_over_waits_for_what_is_rolled_ahead() -> None:
    driver = ScriptedDriver([(1.0, 0), (0.0, 0)])
    roller = GroupRoller(driver, config())
    roller.weights_are(1)
    gate = threading.Event()
    roller.ahead.start(lambda: (gate.wait(5), driver.version)[1])
    handed = threading.Thread(target=lambda: roller.weights_are(2))
    handed.start()
    time.sleep(0.05)
    assert driver.version == 1, "the servers keep the weights that the rollouts began with"
    gate.set()
    handed.join()
    assert (driver.version, roller.ahead.take()) == (2, 1)
    with pytest.raises(RuntimeError, match="nothing was started"):
        roller.ahead.take()


def test_a_rollout_without_tokens_is_refused() -> None:
    """The trainer looks at the last token of every completion."""
    driver = ScriptedDriver([(1.0, 0)])
    inner = driver.run
    driver.run = lambda jobs, sampling: [  # type: ignore[method-assign]
        replace(one, completion_ids=[], mask=[], logprobs=[]) for one in inner(jobs, sampling)
    ]
    with pytest.raises(TrainingError, match="no token at all"):
        GroupRoller(driver, config()).roll([(0, make_arena(1))], 3)


def test_kinds_of_arenas_are_logged_apart_where_they_train_together() -> None:
    read, write = QuestionKind.READ_ONLY.value, QuestionKind.WRITE.value
    groups = [
        Group(0, [], {"reward": 0.2, "f1": 0.2}, read),
        Group(1, [], {"reward": 0.4, "f1": 0.4}, read),
        Group(2, [], {"reward": 1.0, "f1": 0.0, "tool_errors_in_positives": 0.5}, write),
    ]
    means = mean_figures(groups)
    assert means["reward"] == pytest.approx(1.6 / 3)
    assert means["read_only_reward"] == pytest.approx(0.3)
    assert means["write_reward"] == 1.0
    assert means["tool_errors_in_positives"] == 0.5, "over the groups that have it"
    assert "read_only_tool_errors_in_positives" not in means
    assert set(mean_figures(groups[:2])) == {"reward", "f1"}, "one kind needs no second name"


def test_hard_arenas_are_logged_apart_from_look_ups() -> None:
    read = QuestionKind.READ_ONLY.value
    groups = [
        Group(0, [], {"reward": 0.2}, read, "hard"),
        Group(1, [], {"reward": 0.8}, read, "lookup"),
        Group(2, [], {"reward": 0.6}, read, "lookup"),
    ]
    means = mean_figures(groups)
    assert means["hard_reward"] == 0.2
    assert means["lookup_reward"] == pytest.approx(0.7)
    assert "read_only_reward" not in means
    assert set(mean_figures(groups[1:])) == {"reward"}, "one difficulty needs no second name"
    assert [group.bare.difficulty for group in groups] == ["hard", "lookup", "lookup"]


def test_a_group_has_the_difficulty_of_its_arena() -> None:
    driver = ScriptedDriver([(1.0, 0), (0.0, 0)] * 2)
    arenas = [make_arena(seed) for seed in range(2, 40)]
    several = next(arena for arena in arenas if len(arena.steps) > 1)
    hard = several.model_copy(update={"traits": (Trait.HOPS, Trait.PAGES)})
    groups = GroupRoller(driver, config()).roll([(0, make_arena(1)), (1, hard)], 3)
    assert [group.difficulty for group in groups] == ["lookup", "hard"]


def test_nothing_scored_has_no_figures() -> None:
    assert rollout_figures([rollout(EpisodeJob(make_arena(1)), None)]) == {}


def test_end_states_are_a_figure_of_the_rollouts_whose_tools_write() -> None:
    read, wrote, spoiled = (rollout(EpisodeJob(make_arena(1)), 1.0) for _ in range(3))
    assert "state_reached" not in rollout_figures([read])
    for one, reached in ((wrote, True), (spoiled, False)):
        assert one.score is not None
        one.score = replace(one.score, state_reached=reached)
    figures = rollout_figures([read, wrote, wrote, wrote, spoiled])
    assert figures["state_reached"] == 0.75, "a read-only rollout is no world left as it should be"


def test_the_filter_drops_what_is_solved_every_time_and_resumes(tmp_path: Path) -> None:
    arenas = [make_arena(seed) for seed in range(ARENAS_AT_ONCE + 4)]
    ordered = sorted(arenas, key=lambda arena: arena.id)
    # Of three rollouts each: solved 3/3, 2/3, 3/3 less one that our machinery lost, ...
    driver = ScriptedDriver([(1.0, 0)] * 3 + [(1.0, 0), (1.0, 0), (0.0, 0)] + [(1.0, 0), (None, 0)])
    driver.rewards = [*driver.rewards, (1.0, 0)]
    found = passes_of(arenas, 3, driver, config(), tmp_path / "whole")
    kept = in_band(arenas, found, UNSOLVED)
    position = {arena.id: at for at, arena in enumerate(ordered)}
    assert [position[arena.id] % ARENAS_AT_ONCE % 3 for arena in kept].count(0) == 0
    assert len(kept) == sum(at % ARENAS_AT_ONCE % 3 != 0 for at in range(len(arenas)))
    assert driver.runs == [3 * ARENAS_AT_ONCE, 3 * 4]
    assert [found[arena.id] for arena in ordered[:3]] == [(3, 3), (2, 3), (2, 2)]

    again = ScriptedDriver(driver.rewards)
    again.fail_after = 1
    with pytest.raises(KeyboardInterrupt):
        passes_of(arenas, 3, again, config(), tmp_path / "killed")
    again.fail_after = None
    assert passes_of(arenas, 3, again, config(), tmp_path / "killed") == found
    assert again.runs == driver.runs, "the block that was judged is not rolled again"


def test_a_band_has_two_ends_and_keeps_what_was_lost() -> None:
    arenas = sorted((make_arena(number) for number in range(4)), key=lambda arena: arena.id)
    passed = [Passes(0, 8), Passes(1, 8), Passes(8, 8), Passes(0, 7)]
    found = {arena.id: one for arena, one in zip(arenas, passed, strict=True)}
    band = RLBand(rollouts=8, least=1, most=7)
    assert in_band(arenas, found, band) == [arenas[1], arenas[3]]
    with pytest.raises(ValueError, match="least 5 <= most 3"):
        RLBand(rollouts=8, least=5, most=3)


def test_nothing_left_to_train_on_is_said() -> None:
    arenas = [make_arena(1), make_arena(2)]
    found = {arenas[0].id: Passes(8, 8), arenas[1].id: Passes(0, 8)}
    with pytest.raises(TrainingError, match="of 2 training arenas the policy solves 1 more than 7"):
        in_band(arenas, found, RLBand(rollouts=8, least=1, most=7))


def test_phases_change_limits_and_restart_the_optimizer() -> None:
    made = phases(
        config(
            limits={"max_turns": 10, "max_response_tokens": 800},
            schedule=[
                {"steps": 300},
                {"steps": 85, "max_response_tokens": 1200},
                {
                    "steps": 125,
                    "max_turns": 15,
                    "band": {"rollouts": 8, "most": 7},
                    "reset_optimizer": True,
                },
                {"steps": 5},
            ],
        )
    )
    assert [(one.first_step, one.origin, one.trainer_steps) for one in made] == [
        (0, 0, 300), (300, 0, 385), (385, 385, 125), (510, 385, 130),
    ]  # fmt: skip
    assert [one.fresh_optimizer for one in made] == [True, False, True, False]
    assert [(one.limits.max_turns, one.limits.max_response_tokens) for one in made] == [
        (10, 800), (10, 1200), (15, 800), (10, 800),
    ]  # fmt: skip
    assert made[2].band == RLBand(rollouts=8, least=0, most=7)
    (only,) = phases(config(steps=7))
    assert (only.steps, only.fresh_optimizer) == (7, True)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_staleness": 1, "importance": {"type": "trainer"}}, "stale rollouts uncorrected"),
        ({"max_staleness": 1, "batch_filling": False}, "which engine batched does not have"),
        ({"engine": VLLM, "lora": {"rank": 4}}, "adapters"),
        ({"engine": {"type": "continuous", "timeout_s": None}}, "kv_tokens: Field required"),
        ({"engine": {"type": "batched", "timeout_s": 5}}, "Its options: type, rows, tool_overlap"),
        ({"engine": {"type": "none"}}, "there are: batched, continuous, vllm"),
        ({"engine": "vllm"}, "rl/engine=NAME"),
        ({"importance": {"type": "sampler", "cap": 2.0}}, "Extra inputs"),
        ({"importance": {"type": "truncated"}}, "Field required"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    options: dict[str, object], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        config(**options)
