from __future__ import annotations

import asyncio
import json
import random
import runpy
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_scoring import CHAIN, FAR, GOOD, OFFLINE, PRICE, QUESTION, Judge, trajectory

from astra.contamination.index import ContaminationConfig, ContaminationIndex
from astra.contamination.suites import SuiteTexts
from astra.llm.build import teachers_from
from astra.llm.protocol import Ask, ModelConfig, ProviderError, Reply, Teacher
from astra.records.score import Rejection, Score, Scored, Unscored
from astra.records.task import Task, TaskKind
from astra.records.trajectory import SFTSample, StopReason, Trajectory
from astra.scoring.candidates import Candidate, Candidates, SelectionError
from astra.scoring.config import SFTSetConfig
from astra.scoring.families import Families
from astra.scoring.judge import DIMENSIONS, JudgedTrajectory
from astra.scoring.select import contaminated, select, shortlisted
from astra.scoring.sft_set import Statistics, sft_set
from astra.store.metrics import StageMetrics
from astra.store.tables import read_records, write_records

PERFECT: dict[str, Score] = {name: Scored(value=1.0) for name in DIMENSIONS}


def config(**changes: Any) -> SFTSetConfig:
    values: dict[str, Any] = {
        "judge": ModelConfig(backend="offline", model="1"), "min_score": 0.9,
        "near_duplicate": None, "contamination": None, "max_samples": None, "eval_share": 0.2,
        "seed": 0,
    } | changes  # fmt: skip
    return SFTSetConfig(**values)


def light(n: int, domain: str = "d", mean: float = 1.0, text: str | None = None) -> Candidate:
    words = text if text is not None else f"item {n} " * 3
    return Candidate(
        id=f"{n:04d}", task_id=f"t{n}", mean=mean, stratum=(domain, 1, 1), text=words,
        scores=PERFECT,
    )  # fmt: skip


def selected(
    pool: Iterable[Candidate], settings: SFTSetConfig
) -> tuple[list[Candidate], list[Rejection]]:
    """What is left, best first, and why the others are not."""
    with Candidates() as candidates:
        for one in pool:
            candidates.add(one)
        rejections = list(select(candidates, settings))
        chosen = list(candidates.best_first())
        assert [candidates.of(one.id) for one in chosen] == chosen
        assert {candidates.of(one.item) for one in rejections} <= {None}
        return chosen, rejections


def test_the_cap_keeps_shares_and_the_best_and_ignores_order() -> None:
    pool = [light(n, "a", 1.0 - n / 1e4) for n in range(60)]
    pool += [light(n, "b") for n in range(100, 130)] + [light(n, "c") for n in range(200, 210)]
    chosen, dropped = selected(pool, config(max_samples=50))
    assert Counter(one.stratum[0] for one in chosen) == {"a": 30, "b": 15, "c": 5}
    assert {one.id for one in chosen if one.stratum[0] == "a"} == {f"{n:04d}" for n in range(30)}
    assert {one.reason for one in dropped} == {"over_cap"}
    (last,) = (one for one in dropped if one.item == "0059")
    assert last.detail == "mean 0.994; a, length 1, calls 1"
    shuffled = random.Random(1).sample(pool, len(pool))
    assert selected(shuffled, config(max_samples=50)) == (chosen, dropped)


def test_of_near_duplicates_the_best_stays() -> None:
    text = "what is the asking price of amber cove and who is the agent of it"
    pool = [light(1, mean=0.95, text=text), light(2, mean=0.99, text=text), light(3)]
    chosen, dropped = selected(pool, config(near_duplicate=0.95))
    assert [one.id for one in chosen] == ["0003", "0002"]
    assert [(one.item, one.reason) for one in dropped] == [("0001", "near_duplicate")]
    assert dropped[0].detail == text


def test_low_unfinished_and_unscored_are_rejected_with_their_reason() -> None:
    low = PERFECT | {"final_answer": Scored(value=0.0), "tool_status": Scored(value=0.25)}
    words = ("final_answer: correlation 0, faithfulness 0: it is made up",)
    lost = PERFECT | {"query_planning": Unscored(reason="judge_unparsable")}
    for one, given, reason, detail in (
        (CHAIN, JudgedTrajectory(low, words), "below_min_score",
         "mean 0.750: final_answer 0.00, tool_status 0.25"),
        (CHAIN, JudgedTrajectory(lost, words, ("query_planning: prose",)),
         "unscored_query_planning_judge_unparsable", "query_planning: prose"),
        (trajectory(QUESTION, stop=StopReason.MAX_CALLS), JudgedTrajectory(PERFECT, words),
         "stopped_max_calls", ""),
    ):  # fmt: skip
        rejected = shortlisted(one, given, 0.9)
        assert isinstance(rejected, Rejection)
        assert (rejected.item, rejected.reason, rejected.detail) == (one.id, reason, detail)
        assert rejected.said == words[0]


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


def build(
    tasks: Iterable[Task],
    runs: Sequence[Trajectory],
    settings: SFTSetConfig,
    metrics: StageMetrics,
    judge: Teacher = OFFLINE,
    open_items: int = 4,
) -> list[SFTSample]:
    """The samples; rejections are counted in ``metrics``."""
    statistics = Statistics()

    async def made(families: Families) -> list[SFTSample]:
        rows: list[SFTSample] = []
        flow = sft_set(lambda: iter(runs), judge, families, settings, open_items, metrics)
        async for outcome in flow:
            if isinstance(outcome, Rejection):
                metrics.reject(outcome)
            else:
                statistics.measure(metrics, outcome)
                rows.append(outcome)
        return rows

    with Families(tasks) as families:
        rows = asyncio.run(made(families))
    statistics.finish(metrics)
    return rows


def test_samples_carry_scores_and_the_papers_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tasks, runs = made(40)
    metrics = StageMetrics("sft_set")
    rows = build(tasks, runs, config(), metrics)
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
    with pytest.raises(SelectionError, match="judge_unavailable 5"):
        build(tasks, runs, config(min_score=0.0), metrics, down)
    assert metrics.dropped == {"unscored_query_understanding_judge_unavailable": 5}
    assert Path("metrics/sft_set.json").is_file()


def test_the_stage_writes_samples_metrics_and_why_the_others_are_none(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A judge that is down for one, an unfinished one, a low one and a repeated one."""
    monkeypatch.chdir(tmp_path)
    tasks, _ = made(4)
    stopped = CHAIN.model_copy(update={"stop_reason": StopReason.MAX_TURNS})
    low = trajectory(QUESTION, [PRICE], answer="The asking price is <answer>9</answer>")
    lost = trajectory(FAR, [PRICE], answer=GOOD)
    made_by = [
        Trajectory.model_validate(one.model_dump() | {"id": "", "task_id": task.id})
        for one, task in zip([CHAIN, stopped, low, lost], tasks, strict=True)
    ]
    write_records(Path("data/tasks.parquet"), tasks, Task)
    settings = config(min_score=0.95).model_dump(mode="json")
    Path("params.yaml").write_text(yaml.safe_dump({"sft_set": settings, "runtime": {}}))

    class Partly(Judge):
        async def ask(self, ask: Ask[Reply]) -> Reply:
            first = ask.variables.get("rounds") or ask.variables["history"]
            if ask.variables["question"] == FAR and first[0]["calls"][0]["tool"] != "find_agent":
                raise ProviderError("down")
            return await OFFLINE.ask(ask)

    main = runpy.run_path(str(root / "stages/sft_set.py"))["main"]
    for count, fails in ((4, False), (3, True)):
        chosen = made_by if count == 4 else made_by[1:]
        write_records(Path("data/trajectories.parquet"), chosen, Trajectory)
        with teachers_from(lambda _config, _handlers: Partly()):
            if fails:
                with pytest.raises(SelectionError):
                    main()
            else:
                main()
        rejected = {
            one.item: one for one in read_records(Path("data/rejected/sft_set.parquet"), Rejection)
        }
        assert {one.item: one.reason for one in rejected.values()} == {
            made_by[1].id: "stopped_max_turns",
            made_by[2].id: "below_min_score",
            made_by[3].id: "unscored_query_understanding_judge_unavailable",
        }
        assert rejected[made_by[2].id].detail.startswith("mean 0.786: context_understanding 0.00")
        assert "0 of 1 answers are stated by results" in rejected[made_by[2].id].said
        assert "query_understanding: down" in rejected[made_by[3].id].detail.splitlines()
        document = json.loads(Path("metrics/sft_set.json").read_text())
        assert sum(document["dropped"].values()) == len(rejected)
        assert document["samples"] == count - len(rejected)


def test_bytes_do_not_depend_on_how_many_are_open() -> None:
    tasks, runs = made(60)
    joined = {"follow_ups": (tasks[1].id,), "id": "", "sample": 1}
    runs.append(Trajectory.model_validate(runs[0].model_dump() | joined))
    settings = config(max_samples=30, near_duplicate=None)
    rows = [
        build(tasks, runs, settings, StageMetrics("sft_set"), open_items=open_items)
        for open_items in (1, 32)
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 30


def suite_index(folder: Path) -> ContaminationConfig:
    suite = SuiteTexts("bench", texts={"Which office has the agent of Amber Cove?"})
    ContaminationIndex.of([suite]).save(folder / "index.parquet")
    return ContaminationConfig(index=str(folder / "index.parquet"), tool_names=0.5, schemas=0.5)


def test_what_touches_a_benchmark_suite_is_left_out_and_counted(tmp_path: Path) -> None:
    tasks, runs = made(3)
    clean = trajectory(QUESTION, [PRICE], answer=GOOD)
    clean = Trajectory.model_validate(clean.model_dump() | {"id": "", "task_id": tasks[0].id})
    metrics = StageMetrics("sft_set")
    rows = build(tasks, [*runs, clean], config(contamination=suite_index(tmp_path)), metrics)
    assert [row.trajectory_id for row in rows] == [clean.id]
    assert metrics.dropped == {"contaminated_text": 3}
    assert metrics.counts["checked_for_contamination"] == 4
    assert metrics.values["contamination_suites"]["bench"]["texts"] == 1


def test_tools_of_a_suite_are_known_by_the_servers_own_names(tmp_path: Path) -> None:
    tools = [(tool.name, tool.parameters) for tool in CHAIN.tools]
    ContaminationIndex.of([SuiteTexts("bench", tools=tools)]).save(tmp_path / "index.parquet")
    limits = suite_index(tmp_path)
    ContaminationIndex.of([SuiteTexts("bench", tools=tools)]).save(tmp_path / "index.parquet")
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
