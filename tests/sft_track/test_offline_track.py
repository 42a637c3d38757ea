"""Tasks to sft_set with rules only, every option of the larger scales on."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from track import STAGES, Answer, Script, configure, counts, environments, prepare, run, servers

from astra.agent.mcp import open_server
from astra.errors import AstraError
from astra.llm import endpoints
from astra.llm import servers as llm_servers
from astra.llm.build import teachers_from
from astra.prompting import template_hash
from astra.records.message import CallStatus, MessageRole
from astra.records.score import Rejection
from astra.records.task import Task, TaskKind
from astra.records.tool import Execution, ToolServer
from astra.records.trajectory import SFTSample, Trajectory
from astra.store.tables import count_records, read_records
from chat_server import ChatServer
from walls_here import walls


@pytest.fixture(scope="module")
def script() -> Script:
    return Script()


@pytest.fixture(scope="module")
def built(root: Path, tmp_path_factory: pytest.TempPathFactory, script: Script) -> Iterator[Path]:
    """A workspace after the three stages, offline; ``script`` overheard every ask."""
    folder = tmp_path_factory.mktemp("track")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASTRA_CACHE", str(folder / "cache"))
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        patch.chdir(root)
        prepare(folder, servers())
        patch.chdir(folder)
        with teachers_from(script.factory):
            for stage in STAGES:
                run(stage)
        yield folder


def records(folder: Path, stage: str, model: Any) -> list[Any]:
    return list(read_records(folder / f"data/{stage}.parquet", model))


def test_every_option_leaves_its_mark(built: Path) -> None:
    tasks: list[Task] = records(built, "tasks", Task)
    assert {task.kind for task in tasks} == set(TaskKind)
    assert {task.augmentation for task in tasks} == {"none", "diverse", "complicate", "persona"}
    assert {task.language for task in tasks} == {"en", "zh"}
    trajectories: list[Trajectory] = records(built, "trajectories", Trajectory)
    assert any(one.follow_ups for one in trajectories)
    assert len({one.messages[0].content for one in trajectories}) > 2
    statuses = Counter(c.result.status for one in trajectories for c in one.calls)
    assert statuses[CallStatus.TIMEOUT] + statuses[CallStatus.UNREACHABLE] > 0
    samples: list[SFTSample] = records(built, "sft_set", SFTSample)
    talks = [s for s in samples if sum(m.role == MessageRole.USER for m in s.messages) > 1]
    assert talks
    assert {sample.language for sample in samples} == {"en", "zh"}
    assert len(samples) > 0.7 * len(trajectories), counts_of(built)
    scored = counts_of(built)
    assert scored["checked_for_contamination"] == len(trajectories)
    assert "bfcl-multi-turn" in scored["contamination_suites"]


def test_every_drop_is_a_rejection_of_an_input_row(built: Path) -> None:
    for stage, table, model in (
        ("trajectories", "tasks", Task),
        ("sft_set", "trajectories", Trajectory),
    ):
        rejected: list[Rejection] = records(built, f"rejected/{stage}", Rejection)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(built)
            assert Counter(one.reason for one in rejected) == counts(stage)["dropped"]
        known = {one.id for one in records(built, table, model)}
        assert {one.item for one in rejected} <= known
        assert all(one.final for one in rejected)
    misread = [one for one in rejected if one.reason == "misunderstood"]
    assert misread
    assert all("final_answer: " in one.said for one in misread)


def test_every_record_names_the_prompts_behind_it(built: Path) -> None:
    def behind(record: Any) -> set[str]:
        return set(record.prompt_hash.split("+")) - {""}

    def hashes(*templates: str) -> set[str]:
        return {template_hash(template) for template in templates}

    left_out = hashes("tasking/drop_parameter")
    for task in records(built, "tasks", Task):
        if task.augmentation == "none":
            wording = behind(task) & hashes("tasking/chain_task", "tasking/server_task")
        else:
            wording = hashes(f"tasking/{task.augmentation}", "tasking/replan")
        if task.kind is TaskKind.MISSING_PARAMETER:
            wording = left_out
        assert wording
        unsolved = task.kind in (TaskKind.MISSING_FUNCTION, TaskKind.IRRELEVANT)
        judged = hashes("tasking/score", *(["tasking/solvable"] if unsolved else []))
        assert behind(task) == wording | judged
    trajectories = {one.id: one for one in records(built, "trajectories", Trajectory)}
    emulated, spoken = hashes("trajectories/emulate"), hashes("trajectories/user")
    for one in trajectories.values():
        assert behind(one) <= emulated | spoken
        statuses = {call.result.status for call in one.calls}
        answered = one.execution is Execution.EMULATED and CallStatus.OK in statuses
        assert (emulated <= behind(one)) == answered
        assert spoken <= behind(one) or not one.follow_ups
    assert {spoken <= behind(one) for one in trajectories.values()} == {True, False}
    for sample in records(built, "sft_set", SFTSample):
        told = behind(trajectories[sample.trajectory_id])
        assert hashes("scoring/conduct", "scoring/final_answer") | told <= behind(sample)


def counts_of(folder: Path) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return counts("sft_set")


def test_every_real_call_succeeded_and_does_again_on_a_fresh_server(built: Path) -> None:
    by_id = {s.id: s for s in records(built, "tools", ToolServer)}
    live = [t for t in records(built, "trajectories", Trajectory) if t.execution is Execution.LIVE]
    assert sum(len(one.calls) for one in live) >= 3
    for one in live:
        assert {call.result.status for call in one.calls} <= {CallStatus.OK}

    async def replay(one: Trajectory) -> list[str]:
        launch = by_id[one.server_id].launch
        assert launch is not None
        with tempfile.TemporaryDirectory() as workdir:
            async with open_server(
                launch, Path(workdir), 300.0, environments(), walls()
            ) as session:
                return [
                    (await session.call_tool(c.call.name, json.loads(c.call.arguments))).content
                    for c in one.calls
                ]

    for one in live[:2]:
        assert asyncio.run(replay(one)) == [call.result.content for call in one.calls]


@pytest.mark.parametrize(
    "broken",
    [
        Answer("I cannot judge this."),
        Answer('{"reason": "fine", "score": 1.0'),
        Answer(
            '{"reason": "", "understanding": 9, "planning": 1, "correlation": 2, "faithfulness": 1}'
        ),
        Answer(status=500, error="down"),
    ],
    ids=["prose", "cut", "out of range", "down"],
)
def test_a_judge_outage_accepts_nothing(
    root: Path, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Answer
) -> None:
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(endpoints, "BACKOFF_S", 0.01)
    monkeypatch.setattr(llm_servers, "REST_S", 0.01)
    monkeypatch.chdir(root)
    prepare(tmp_path, servers())
    monkeypatch.chdir(tmp_path)
    for name in ("tasks", "trajectories"):
        Path(f"data/{name}.parquet").write_bytes((built / f"data/{name}.parquet").read_bytes())
    with ChatServer(default=lambda _: broken) as server:
        configure(tmp_path, server.url, sft_set={"judge": "m"})
        with pytest.raises(AstraError):
            run("sft_set")
    assert server.requests
    rejected = list(read_records(Path("data/rejected/sft_set.parquet"), Rejection))
    assert all(one.reason.startswith("unscored_") and one.detail for one in rejected)
    sft_set = Path("data/sft_set.parquet")
    assert not sft_set.exists() or count_records(sft_set) == 0
