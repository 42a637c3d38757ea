from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from test_scoring import CHAIN, GOOD, OFFLINE, PRICE, QUESTION, Judge, trajectory

from astra.contamination.index import ContaminationConfig, ContaminationIndex
from astra.contamination.suites import Suite
from astra.llm.protocol import ModelConfig, ProviderError
from astra.records.score import Scored
from astra.records.task import Task, TaskKind
from astra.records.trajectory import StopReason, Trajectory
from astra.scoring.build import Statistics, samples, scored, shortlist
from astra.scoring.config import SFTSetConfig
from astra.scoring.judge import DIMENSIONS
from astra.scoring.select import (
    Candidate,
    Families,
    SelectionError,
    candidate,
    contaminated,
    select,
)
from astra.stage import blocking
from astra.store.metrics import StageMetrics

PERFECT = {name: Scored(value=1.0) for name in DIMENSIONS}


def config(**changes: Any) -> SFTSetConfig:
    values: dict[str, Any] = {
        "judge": ModelConfig(backend="offline", model="1"), "min_score": 0.9,
        "near_duplicate": None, "contamination": None, "max_samples": None, "eval_share": 0.2,
        "seed": 0,
    } | changes  # fmt: skip
    return SFTSetConfig(**values)


def light(n: int, domain: str = "d", mean: float = 1.0, text: str | None = None) -> Candidate:
    words = text if text is not None else f"item {n} " * 3
    return Candidate(f"{n:04d}", f"t{n}", mean, (domain, 1, 1), words, PERFECT)


def test_the_cap_keeps_shares_and_the_best_and_ignores_order() -> None:
    pool = [light(n, "a", 1.0 - n / 1e4) for n in range(60)]
    pool += [light(n, "b") for n in range(100, 130)] + [light(n, "c") for n in range(200, 210)]
    chosen, dropped = select(pool, config(max_samples=50))
    assert Counter(one.stratum[0] for one in chosen) == {"a": 30, "b": 15, "c": 5}
    assert {one.id for one in chosen if one.stratum[0] == "a"} == {f"{n:04d}" for n in range(30)}
    assert {one.reason for one in dropped} == {"over_cap"}
    shuffled = random.Random(1).sample(pool, len(pool))
    assert select(shuffled, config(max_samples=50)) == (chosen, dropped)


def test_of_near_duplicates_the_best_stays() -> None:
    text = "what is the asking price of amber cove and who is the agent of it"
    pool = [light(1, mean=0.95, text=text), light(2, mean=0.99, text=text), light(3)]
    chosen, dropped = select(pool, config(near_duplicate=0.95))
    assert [one.id for one in chosen] == ["0003", "0002"]
    assert [(one.item, one.reason) for one in dropped] == [("0001", "near_duplicate")]


def test_low_unfinished_and_unscored_are_rejected_with_their_reason() -> None:
    low = PERFECT | {"final_answer": Scored(value=0.0)}
    for one, given, reason in (
        (CHAIN, low, "below_min_score"),
        (trajectory(QUESTION, stop=StopReason.MAX_CALLS), PERFECT, "stopped_max_calls"),
    ):
        rejected = candidate(one, dict(given), 0.9)
        assert not isinstance(rejected, Candidate)
        assert rejected.reason == reason


def family(n: int, parent: str | None = None) -> Task:
    return Task(server_id="s", chain_id=None, kind=TaskKind.CHAIN, language="en",
                question=f"q{n}", plan=(), parent_id=parent)  # fmt: skip


def test_a_family_is_never_split() -> None:
    roots = [family(n) for n in range(200)]
    children = [family(1000 + n, root.id) for n, root in enumerate(roots)]
    grandchildren = [family(2000 + n, child.id) for n, child in enumerate(children)]
    families = Families([*grandchildren, *children, *roots])
    for trio in zip(roots, children, grandchildren, strict=True):
        assert len({families.split(task.id, 0.2, 0) for task in trio}) == 1
    share = Counter(families.split(root.id, 0.2, 0) for root in roots)
    assert 20 <= share["eval"] <= 60
    orphan = family(3000, "gone")
    sibling = family(3001, "gone")
    rooted = Families([orphan, sibling])
    assert rooted.root(orphan.id) == rooted.root(sibling.id) == "gone"
    with pytest.raises(SelectionError, match="not in the task table"):
        families.root("other")


def made(count: int) -> tuple[list[Task], list[Trajectory]]:
    tasks = [family(n) for n in range(count)]
    runs = [CHAIN.model_copy(update={"id": "", "task_id": task.id}) for task in tasks]
    return tasks, [Trajectory.model_validate(run.model_dump()) for run in runs]


def test_samples_carry_scores_and_the_papers_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tasks, runs = made(40)
    metrics = StageMetrics("sft_set")
    chosen = shortlist(blocking(scored(runs, OFFLINE, 4)), config(), metrics)
    statistics = Statistics(metrics)
    rows = list(statistics.watch(samples(runs, chosen, Families(tasks), config())))
    statistics.finish()
    metrics.write()
    assert len(rows) == 40
    assert rows[0].mean_score == 1.0
    assert set(rows[0].scores) == set(DIMENSIONS)
    document = metrics.document()
    assert document["samples"] == document["samples_train"] + document["samples_eval"] == 40
    assert document["messages_per_sample"] == 7
    assert document["calls_per_sample"] == 2
    assert document["share_1_to_5_calls"] == 1
    assert document["functions_covered"] == 2
    assert Path("plots/sft_set/calls_per_sample.csv").read_text() == "value,count\n2,40\n"


def test_a_judge_outage_accepts_nothing_and_ends_the_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tasks, runs = made(5)
    down = Judge(**dict.fromkeys(DIMENSIONS, ProviderError("down")))
    metrics = StageMetrics("sft_set")
    chosen = shortlist(blocking(scored(runs, down, 4)), config(min_score=0.0), metrics)
    assert chosen == {}
    assert metrics.dropped == {"unscored_query_understanding_judge_unavailable": 5}
    statistics = Statistics(metrics)
    assert list(statistics.watch(samples(runs, chosen, Families(tasks), config()))) == []
    with pytest.raises(SelectionError, match="judge_unavailable 5"):
        statistics.finish()
    assert Path("metrics/sft_set.json").is_file()


def suite_index(folder: Path) -> ContaminationConfig:
    suite = Suite("bench", texts={"Which office has the agent of Amber Cove?"})
    ContaminationIndex.of([suite]).save(folder / "index.parquet")
    return ContaminationConfig(index=str(folder / "index.parquet"), tool_names=0.5, schemas=0.5)


def test_what_touches_a_benchmark_suite_is_left_out_and_counted(tmp_path: Path) -> None:
    _, runs = made(3)
    clean = trajectory(QUESTION, [PRICE], answer=GOOD)
    metrics = StageMetrics("sft_set")
    pairs = blocking(scored([*runs, clean], OFFLINE, 2))
    chosen = shortlist(pairs, config(contamination=suite_index(tmp_path)), metrics)
    assert list(chosen) == [clean.id]
    assert metrics.dropped == {"contaminated_text": 3}
    assert metrics.counts["checked_for_contamination"] == 4
    assert metrics.values["contamination_suites"]["bench"]["texts"] == 1


def test_tools_of_a_suite_are_known_by_the_servers_own_names(tmp_path: Path) -> None:
    tools = [(tool.name, tool.parameters) for tool in CHAIN.tools]
    ContaminationIndex.of([Suite("bench", tools=tools)]).save(tmp_path / "index.parquet")
    limits = suite_index(tmp_path)
    ContaminationIndex.of([Suite("bench", tools=tools)]).save(tmp_path / "index.parquet")
    index = ContaminationIndex.load(tmp_path / "index.parquet")
    renamed = tuple(
        tool.model_copy(update={"name": f"x{n}", "original_name": tool.name})
        for n, tool in enumerate(CHAIN.tools)
    )
    found = contaminated(CHAIN.model_copy(update={"tools": renamed}), index, limits)
    assert found is not None
    assert found.reason == "contaminated_names"


def test_families_that_one_conversation_joins_stay_in_one_split() -> None:
    roots = [family(n) for n in range(200)]
    families = Families(roots)
    before = [families.split(root.id, 0.2, 0) for root in roots]
    pairs = list(zip(roots[::2], roots[1::2], strict=True))
    for left, right in pairs:
        families.join([left.id, right.id])
    families.join([roots[0].id, roots[2].id, roots[4].id])
    after = [families.split(root.id, 0.2, 0) for root in roots]
    assert before[::2] != before[1::2]
    assert after[::2] == after[1::2]
    assert len(set(after[:6])) == 1
    assert 5 <= Counter(after)["eval"] / 2 <= 40
