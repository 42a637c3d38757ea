"""Advantages, RoC and batch filling against hand-worked cases."""

import random
from collections import Counter

import pytest
from training_world import make_arena

from astra.records.message import CallStatus, ExecutedCall, ToolCall, ToolResult
from astra.train.advantages import group_std, is_informative
from astra.train.filling import BatchFiller
from astra.train.groups import PromptStream
from astra.train.roc import Graded, penalty, select


def test_the_spread_of_a_group_by_hand() -> None:
    # mean 0.5, squared deviations 4 * 0.25 = 1, sample variance 1/3
    assert group_std([0.0, 1.0, 0.0, 1.0]) == pytest.approx(0.57735, abs=1e-5)
    assert group_std([0.4, 0.4]) == group_std([0.4]) == 0.0


def test_only_groups_that_spread_are_informative() -> None:
    assert not is_informative([0.5] * 8, 1e-6)
    assert is_informative([0.5] * 7 + [0.6], 1e-6)
    assert not is_informative([0.5] * 7 + [0.6], 0.1)


def made(*statuses: CallStatus) -> list[ExecutedCall]:
    call = ToolCall(id="c", name="f", arguments="{}")
    return [
        # A benign result that contains the word, and a timeout that does not.
        ExecutedCall(turn=0, call=call, result=ToolResult(status=s, content="standard error 0.3"))
        for s in statuses
    ]


def test_penalty_counts_structured_failures_and_answer_tags() -> None:
    ok, bad = CallStatus.OK, CallStatus.TIMEOUT
    one = "<answer>1</answer>"
    assert penalty(made(ok, ok), one, 2) == 0.0
    assert penalty(made(ok, bad, ok, bad), one, 2) == 0.5
    assert penalty([], one, 1) == 0.5
    assert penalty(made(ok), "no tag", 2) == 1.0
    assert penalty(made(ok), one * 3, 4) == 0.5
    assert penalty(made(ok, CallStatus.INFRA), one, 2) == 0.0


def group(*pairs: tuple[float, float]) -> list[Graded]:
    return [Graded(reward, p) for reward, p in pairs]


def test_roc_sort_keeps_the_cleanest_positives_and_the_class_shares() -> None:
    rolled = group((1, 0.9), (0, 0), (1, 0.1), (1, 0.5), (0, 0), (1, 0.1), (0, 0), (1, 0.7))
    kept = select(rolled, 4, "sort", 0.0, random.Random(0))
    # 3 negatives of 8: floor(3 * 4 / 8) = 1 stays; 3 positives: penalties .1, .1, .5
    assert [i for i in kept if rolled[i].reward > 0] == [2, 3, 5]
    assert len(kept) == 4


def test_roc_odd_counts_never_break_the_size() -> None:
    for negatives in range(31):
        rolled = group(*[(0.0, 0.0)] * negatives, *[(1.0, 0.2)] * (30 - negatives))
        for mode in ("sample", "sort"):
            kept = select(rolled, 15, mode, 0.0, random.Random(1))
            assert len(set(kept)) == 15
            assert sum(rolled[i].reward == 0 for i in kept) == negatives // 2


def test_roc_sample_prefers_clean_positives_but_not_always() -> None:
    rolled = group((1, 0.0), (1, 1.0), (1, 1.0), (1, 1.0))
    counts = Counter(
        i for seed in range(400) for i in select(rolled, 1, "sample", 0.0, random.Random(seed))
    )
    # weights 1/0.05 = 20 against 3 * 1/1.05: 20 / 22.86 = 87.5 %
    assert 320 < counts[0] < 380


def test_roc_negatives_are_uniform() -> None:
    rolled = group(*[(0.0, float(i)) for i in range(4)])
    counts = Counter(
        i for seed in range(400) for i in select(rolled, 2, "sort", 0.0, random.Random(seed))
    )
    assert all(150 < counts[i] < 250 for i in range(4))


def test_filling_stops_as_soon_as_enough_groups_carry_signal() -> None:
    filler: BatchFiller[int] = BatchFiller(lambda n: n % 3 == 0, max_rounds=10)
    source = iter(range(1000))
    filled = filler.fill(4, lambda count, _: [next(source) for _ in range(count)])
    assert filled.groups == [0, 3, 6, 9]
    assert filled.informative == 4
    assert filled.rounds <= 4


def test_filling_is_bounded_and_tops_up_without_signal() -> None:
    rounds: list[tuple[int, int]] = []

    def roll(count: int, round_: int) -> list[int]:
        rounds.append((count, round_))
        return [1] * count

    filler: BatchFiller[int] = BatchFiller(lambda n: n == 0, max_rounds=3)
    filled = filler.fill(4, roll)
    assert len(rounds) == 3
    assert all(count <= 16 for count, _ in rounds), "a round is at most need / MIN_RATE"
    assert (len(filled.groups), filled.informative) == (4, 0)


def test_filling_without_any_group_is_an_error() -> None:
    filler: BatchFiller[int] = BatchFiller(bool, max_rounds=2)
    rounds: list[int] = []

    def roll(count: int, round_: int) -> list[int]:
        rounds.append(count)
        return []

    with pytest.raises(ValueError, match="only 0 of 4"):
        filler.fill(4, roll)
    assert rounds == [4, 4, 4, 4], "bounded: two rounds, and two to replace what was lost"


def test_lost_groups_are_replaced_beyond_the_last_round() -> None:
    rounds: list[int] = []

    def roll(count: int, round_: int) -> list[int]:
        rounds.append(count)
        return [3] * (count - 1) if round_ < 2 else [1] * count  # one of each round is lost

    filled = BatchFiller[int](lambda n: n == 3, max_rounds=1).fill(4, roll)
    assert rounds == [4, 1, 1], "one round as configured, and the lost group twice"
    assert (filled.groups, filled.informative) == ([3, 3, 3, 1], 3)


def test_filling_off_takes_the_first_groups_and_replaces_only_lost_ones() -> None:
    filler: BatchFiller[int] = BatchFiller(lambda n: n == 3, max_rounds=3, adaptive=False)
    rounds: list[int] = []

    def roll(count: int, round_: int) -> list[int]:
        rounds.append(count)
        return [1, 3, 1] if round_ == 0 else [2] * count  # one of four is lost

    filled = filler.fill(4, roll)
    assert rounds == [4, 1]
    assert sorted(filled.groups) == [1, 1, 2, 3]
    assert (filled.informative, filled.surplus) == (1, [])


def test_filling_off_prefers_no_group_where_more_were_rolled_than_asked_for() -> None:
    filler: BatchFiller[int] = BatchFiller(lambda n: n == 3, max_rounds=1, adaptive=False)
    filled = filler.fill(3, lambda count, _: [1, 2, 3, 3])  # two ranks roll two each
    assert sorted(filled.groups) == [1, 2, 3]
    assert (filled.informative, filled.rolled, filled.surplus) == (1, 4, [])


def test_surplus_is_handed_back_and_comes_first_next_time() -> None:
    filler: BatchFiller[int] = BatchFiller(lambda n: True, max_rounds=3)
    filler.rate = 0.5
    source = iter(range(100))
    first = filler.fill(2, lambda count, _: [next(source) for _ in range(count)])
    assert (first.groups, first.surplus) == ([0, 1], [2, 3])
    second = filler.fill(3, lambda count, _: [next(source) for _ in range(count)], first.surplus)
    assert second.groups == [2, 3, 4]


def test_prompt_stream_visits_all_and_resumes_anywhere() -> None:
    arenas = [make_arena(seed) for seed in range(5)]
    whole = PromptStream(arenas, seed=1).take(12)
    assert len({arena.id for _, arena in whole[:5]}) == 5
    resumed = PromptStream(list(reversed(arenas)), seed=1)
    resumed.position = 7
    assert resumed.take(5) == whole[7:]
    assert PromptStream(arenas, seed=2).take(12) != whole
