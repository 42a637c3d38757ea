from __future__ import annotations

import asyncio
import json
import random
import runpy
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel
from test_scoring import (
    AGENT,
    CHAIN,
    FAR,
    GOOD,
    LATE,
    OFFICE,
    OFFLINE,
    PRICE,
    QUESTION,
    WRITE,
    Judge,
    config,
    trajectory,
)

from astra.contamination.index import ContaminationConfig, ContaminationIndex
from astra.contamination.suites import SuiteTexts
from astra.llm.build import teachers_from
from astra.llm.protocol import Ask, ProviderError, Reply, Teacher
from astra.records.message import CallStatus
from astra.records.score import Rejection, Score, Scored, Unscored
from astra.records.task import Task, TaskKind
from astra.records.trajectory import SFTSample, StopReason, Trajectory
from astra.scoring.asks import TurnGrade
from astra.scoring.candidates import Candidate, Candidates, SelectionError
from astra.scoring.config import SFTSetConfig
from astra.scoring.families import Families
from astra.scoring.floors import (
    DIMENSIONS,
    SELECTION,
    JudgedTrajectory,
    best_mean,
    shortfall,
)
from astra.scoring.judge import score
from astra.scoring.select import contaminated, select, shortlisted
from astra.scoring.sft_set import Statistics, sft_set
from astra.store.metrics import StageMetrics
from astra.store.tables import read_records, write_records

PERFECT: dict[str, Score] = {name: Scored(value=1.0) for name in DIMENSIONS}
EXTRAS: dict[str, Score] = {name: Scored(value=1.0) for name in SELECTION}


def light(
    n: int, domain: str = "d", rank: float = 1.0, text: str | None = None, recovered: bool = False
) -> Candidate:
    words = text if text is not None else f"item {n} " * 3
    return Candidate(
        id=f"{n:04d}", task_id=f"t{n}", mean=rank, rank=rank, stratum=(domain, 1, 1, recovered),
        text=words, scores=PERFECT, selection=EXTRAS,
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
    assert last.detail == "mean 0.994; a, length 1, calls 1, no recovery"
    shuffled = random.Random(1).sample(pool, len(pool))
    assert selected(shuffled, config(max_samples=50)) == (chosen, dropped)


def test_of_near_duplicates_the_best_stays() -> None:
    text = "what is the asking price of amber cove and who is the agent of it"
    pool = [light(1, rank=0.95, text=text), light(2, rank=0.99, text=text), light(3)]
    chosen, dropped = selected(pool, config(near_duplicate=0.95))
    assert [one.id for one in chosen] == ["0003", "0002"]
    assert [(one.item, one.reason) for one in dropped] == [("0001", "near_duplicate")]
    assert dropped[0].detail == text


def test_a_cut_set_keeps_its_share_of_recoveries() -> None:
    pool = [light(n) for n in range(80)] + [light(n, recovered=True) for n in range(100, 120)]
    chosen, dropped = selected(pool, config(max_samples=50))
    assert Counter(one.stratum[3] for one in chosen) == {False: 40, True: 10}
    assert {one.detail.split(", ")[-1] for one in dropped} == {"no recovery", "recovery"}


def test_what_failed_around_an_agent_does_not_put_it_behind_others() -> None:
    smooth = trajectory(QUESTION, [PRICE], answer=GOOD)
    rough = trajectory(QUESTION, [LATE], [PRICE], answer=GOOD)
    found = [
        shortlisted(one, asyncio.run(score(one, Judge(), config())), config())
        for one in (smooth, rough)
    ]
    candidates = [one for one in found if isinstance(one, Candidate)]
    assert [one.rank for one in candidates] == [1.0, 1.0]
    assert [one.stratum[3] for one in candidates] == [False, True]
    assert [round(one.mean, 3) for one in candidates] == [1.0, 0.929]


def judged(*said: str, **values: float | str) -> JudgedTrajectory:
    """Full marks but for some: a text is the reason why there is none."""
    given: dict[str, Score] = {
        name: Unscored(reason=value) if isinstance(value, str) else Scored(value=value)
        for name, value in values.items()
    }
    return JudgedTrajectory(
        scores=PERFECT | {name: score for name, score in given.items() if name in DIMENSIONS},
        selection=EXTRAS | {name: score for name, score in given.items() if name in SELECTION},
        said=said,
    )


def rejected(found: JudgedTrajectory, **changes: Any) -> tuple[str, str] | None:
    outcome = shortlisted(CHAIN, found, config(**changes))
    if isinstance(outcome, Candidate):
        return None
    assert outcome.item == CHAIN.id
    assert outcome.said == "\n".join(found.said)
    return outcome.reason, outcome.detail


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (judged(), None),
        (judged(query_understanding=0.5),
         ("misunderstood", "query_understanding 0.50, floor 1.00")),
        (judged(faithfulness=0.5, final_answer=0.75),
         ("not_faithful", "faithfulness 0.50, floor 1.00")),
        (judged(correlation=0.5, final_answer=0.75), None),
        (judged(correlation=0.0, final_answer=0.5),
         ("not_answered", "correlation 0.00, floor 0.50")),
        (judged(closing=0.5, context_understanding=0.9),
         ("misread", "closing 0.50, floor 1.00")),
        (judged(closing="not_applicable"), None),
        (judged(query_planning=0.5, context_planning=0.5),
         ("below_min_score", "mean 0.857: context_planning 0.50, query_planning 0.50")),
        # Outages count in the paper's mean, not in selection.
        (judged(tool_status=0.25), None),
        (judged(tool_status=0.25, own_tool_status="not_applicable"), None),
        (judged(tool_status=0.25, own_tool_status=0.25),
         ("below_min_score", "mean 0.893: tool_status 0.25")),
        (judged(query_planning="judge_unparsable"),
         ("unscored_query_planning_judge_unparsable", "")),
        (judged(context_planning="not_asked", final_answer="judge_unavailable"),
         ("unscored_final_answer_judge_unavailable", "")),
        # What failed says more than what is missing besides.
        (judged("the answer is made up", faithfulness=0.0, context_planning="not_asked"),
         ("not_faithful", "faithfulness 0.00, floor 1.00")),
    ],
)  # fmt: skip
def test_each_floor_has_its_reason(found: JudgedTrajectory, why: tuple[str, str] | None) -> None:
    assert rejected(found) == why


def test_fabricated_and_needless_fall_with_the_judges_words() -> None:
    made_up = replace(judged(query_understanding=0.0), fabricated=("call 1.1, order = 4: x",))
    assert rejected(made_up) == ("fabricated_argument", "call 1.1, order = 4: x")
    needless = replace(judged(), needless_writes=("call 2.1 book: not asked",))
    assert rejected(needless) == ("needless_write", "call 2.1 book: not asked")


def test_floors_are_parameters() -> None:
    lax = {**config().floors.model_dump(), "query_understanding": 0.5, "faithfulness": 0.5}
    half = judged(query_understanding=0.5, faithfulness=0.5, final_answer=0.75)
    assert rejected(half, floors=lax, min_score=0.8) is None
    assert rejected(half, min_score=0.8) == (
        "misunderstood", "query_understanding 0.50, floor 1.00",
    )  # fmt: skip


def test_what_is_not_judged_yet_may_still_be_perfect() -> None:
    pending = judged(context_planning="not_asked", context_understanding="not_asked")
    assert shortfall(pending, config()) is None
    low = judged(context_planning="not_asked", query_planning=0.0, tool_status="not_applicable")
    assert shortfall(low, config()) == ("below_min_score", "mean 0.857: query_planning 0.00")
    assert best_mean({}) == 0.0
    assert best_mean({"a": Unscored(reason="not_applicable"), "b": Scored(value=0.5)}) == 0.5


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
    assert set(rows[0].selection) == set(SELECTION)
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
    down = Judge(conduct=ProviderError("down"), final_answer=ProviderError("down"))
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
    settings = config().model_dump(mode="json")
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
            made_by[2].id: "not_faithful",
            made_by[3].id: "unscored_query_understanding_judge_unavailable",
        }
        assert rejected[made_by[2].id].detail == "faithfulness 0.00, floor 1.00"
        assert "0 of 1 answers are stated by results" in rejected[made_by[2].id].said
        assert "conduct: down" in rejected[made_by[3].id].detail.splitlines()
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


def test_what_is_unfit_from_the_start_is_not_judged(tmp_path: Path) -> None:
    tasks, runs = made(2)
    stopped = CHAIN.model_copy(update={"stop_reason": StopReason.MAX_TURNS})
    stopped = Trajectory.model_validate(stopped.model_dump() | {"id": "", "task_id": tasks[0].id})
    clean = trajectory(QUESTION, [PRICE], answer=GOOD)
    clean = Trajectory.model_validate(clean.model_dump() | {"id": "", "task_id": tasks[0].id})
    metrics, judge = StageMetrics("sft_set"), Judge()
    settings = config(contamination=suite_index(tmp_path))
    assert len(build(tasks, [*runs, stopped, clean], settings, metrics, judge)) == 1
    assert metrics.dropped == {"contaminated_text": 3}
    assert judge.asked() == ["conduct", "final_answer", "turn"]
    metrics, judge = StageMetrics("sft_set"), Judge()
    build(tasks, [stopped, clean], config(), metrics, judge)
    assert metrics.dropped == {"stopped_max_turns": 1}
    assert judge.asked() == ["conduct", "final_answer", "turn"]
    assert metrics.values["scored_by_dimension"]["query_understanding"] == 1


def test_suspects_are_counted_by_what_the_judge_made_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tasks, _ = made(3)
    far = trajectory(
        "How warm is it in Oslo?",
        [("list_homes", {"city": "NO-03", "limit": 3}, CallStatus.OK, "4")],
        answer="It is 4. <answer>4</answer>",
    )
    runs = [
        Trajectory.model_validate(far.model_dump() | {"id": "", "task_id": task.id})
        for task in tasks
    ]
    metrics = StageMetrics("sft_set")
    rows = build(tasks, runs, config(), metrics, Judge(origins={1: "derived", 2: "chosen"}))
    assert len(rows) == 3
    assert metrics.values["suspects_by_origin"] == {"chosen": 3, "derived": 3}
    metrics = StageMetrics("sft_set")
    with pytest.raises(SelectionError, match="fabricated_argument 3"):
        build(tasks, runs, config(), metrics, Judge(origins={2: "fabricated"}))
    assert metrics.values["suspects_by_origin"] == {"derived": 3, "fabricated": 3}


def test_a_needless_write_leaves_its_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tasks, _ = made(1)
    one = trajectory(QUESTION, [PRICE], [WRITE], answer=GOOD)
    one = Trajectory.model_validate(one.model_dump() | {"id": "", "task_id": tasks[0].id})
    metrics = StageMetrics("sft_set")
    judge = Judge(calls={"2.1": {"changes": "unasked", "reason": "only the price was asked"}})
    with pytest.raises(SelectionError, match="needless_write 1"):
        build(tasks, [one], config(), metrics, judge)


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


class Doubting(Judge):
    """Half understanding for turns that call something, or for those that call nothing."""

    def __init__(self, *, calling: bool) -> None:
        super().__init__()
        self.calling = calling

    def graded(self, ask: Ask[Any]) -> BaseModel:
        grade = super().graded(ask)
        if isinstance(grade, TurnGrade) and bool(ask.variables["turn"]["calls"]) is self.calling:
            return grade.model_copy(update={"understanding": 0.5})
        return grade


def test_a_message_that_one_turns_judge_finds_untrue_is_not_kept() -> None:
    """The judge of the whole passed it; a misreading on the way that the message mends may stay."""
    steps = trajectory(FAR, [AGENT], [OFFICE], answer="It is <answer>Pine Dock</answer>")
    told = asyncio.run(score(steps, Doubting(calling=False), config()))
    assert (told.selection["closing"], told.selection["faithfulness"]) == (
        Scored(value=0.5), Scored(value=1.0),
    )  # fmt: skip
    assert rejected(told) == ("misread", "closing 0.50, floor 1.00")
    mended = asyncio.run(score(steps, Doubting(calling=True), config()))
    assert mended.selection["closing"] == Scored(value=1.0)
    assert mended.scores["context_understanding"] == Scored(value=0.75)
    assert rejected(mended) is None
    at_once = trajectory(QUESTION, answer="I cannot tell")
    alone = asyncio.run(score(at_once, Doubting(calling=False), config()))
    assert alone.selection["closing"] == Unscored(reason="not_applicable")
