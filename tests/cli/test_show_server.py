"""``astra show TABLE --server NAME``: the records of one server, in every table that has one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from astra.cli.main import commands
from astra.cli.servers import ServerFilterError
from astra.records.base import Record
from astra.records.graph import ToolGraph
from astra.records.score import Rejection
from astra.records.task import Task, TaskKind
from astra.records.tool import Execution, ToolServer
from astra.records.trajectory import SFTSample, StopReason, Trajectory
from astra.store.tables import write_records


def server(name: str) -> ToolServer:
    return ToolServer(
        name=name, title="", description="", domain="home", source="here", licence="MIT",
        language="en", execution=Execution.EMULATED, deterministic=True, tools=(),
    )  # fmt: skip


def task(server_id: str, question: str) -> Task:
    return Task(
        server_id=server_id, chain_id=None, kind=TaskKind.SERVER, language="en",
        question=question, plan=(),
    )  # fmt: skip


def trajectory(done: Task) -> Trajectory:
    return Trajectory(
        task_id=done.id, server_id=done.server_id, sample=0, policy="p", language="en",
        execution=Execution.EMULATED, domain="home", tools=(), messages=(), calls=(),
        stop_reason=StopReason.ANSWERED,
    )  # fmt: skip


def sample(of: Trajectory) -> SFTSample:
    return SFTSample(
        trajectory_id=of.id, split="train", language="en", domain="home", tools=(), messages=(),
        scores={}, mean_score=1.0,
    )  # fmt: skip


AQUARIUM, HARBOUR = server("aquarium"), server("harbour")
GRAPH = ToolGraph(server_id=AQUARIUM.id, nodes=(), edges=(), proposals=0)
TASKS = [task(AQUARIUM.id, "how warm?"), task(AQUARIUM.id, "who?"), task(HARBOUR.id, "how warm?")]
TRAJECTORIES = [trajectory(one) for one in TASKS]
TABLES: dict[str, list[Record]] = {
    "tools": [AQUARIUM, HARBOUR],
    "graph": [GRAPH, ToolGraph(server_id=HARBOUR.id, nodes=(), edges=(), proposals=0)],
    "tasks": [*TASKS],
    "trajectories": [*TRAJECTORIES],
    "sft_set": [sample(one) for one in TRAJECTORIES[1:]],
    "rejected/chains": [
        Rejection(item=GRAPH.id, part="a > b", reason="incoherent"),
        Rejection(item="another graph", part="a > b", reason="incoherent"),
    ],
    "rejected/tasks": [
        Rejection(item=AQUARIUM.id, reason="ask_failed"),
        Rejection(item=HARBOUR.id, reason="ask_failed"),
    ],
    "rejected/sft_set": [Rejection(item=TRAJECTORIES[0].id, reason="below_min_score")],
    "rejected/tools": [Rejection(item="aquarium (here)", reason="too_few_tools")],
    "rejected/qa": [Rejection(item="a question", reason="incoherent")],
}


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, records in TABLES.items():
        write_records(tmp_path / f"data/{name}.parquet", records, type(records[0]))
    return tmp_path


def shown(table: str, *arguments: str) -> list[str]:
    """The ids of the records shown."""
    options = ["--json", "--limit", "0", *arguments]
    result = CliRunner().invoke(commands, ["show", table, *options], catch_exceptions=False)
    return sorted(json.loads(line)["id"] for line in result.output.splitlines())


@pytest.mark.parametrize(
    ("table", "indices"),
    [
        ("tools", [0]), ("graph", [0]), ("tasks", [0, 1]), ("trajectories", [0, 1]),
        ("sft_set", [0]), ("rejected/chains", [0]), ("rejected/tasks", [0]),
        ("rejected/sft_set", [0]),
    ],
)  # fmt: skip
def test_the_records_of_a_server_are_found_by_its_name_or_id(
    table: str, indices: list[int]
) -> None:
    expected = sorted(TABLES[table][index].id for index in indices)
    assert shown(table, "--server", "aquarium") == expected
    assert shown(table, "--server", AQUARIUM.id) == expected


def test_a_server_and_other_conditions_hold_together() -> None:
    found = shown("tasks", "--server", "aquarium", "--where", "question~WARM")
    assert found == [TASKS[0].id]


@pytest.mark.parametrize("table", ["rejected/tools", "rejected/qa"])
def test_a_table_whose_records_name_no_server_is_refused(table: str) -> None:
    with pytest.raises(ServerFilterError, match=r"name no server; those of tools, graph, chains"):
        shown(table, "--server", "aquarium")


def test_an_unknown_server_is_answered_with_the_nearest_names() -> None:
    said = r"no server 'aquariums' .*nearest are aquarium; one that was dropped .*item~aquariums"
    with pytest.raises(ServerFilterError, match=said):
        shown("tasks", "--server", "aquariums")


def test_without_a_table_of_servers_the_stage_that_makes_it_is_named(workspace: Path) -> None:
    (workspace / "data/tools.parquet").unlink()
    with pytest.raises(ServerFilterError, match="dvc repro tools"):
        shown("tasks", "--server", "aquarium")


def test_later_tables_need_no_table_that_is_not_built(workspace: Path) -> None:
    (workspace / "data/trajectories.parquet").unlink()
    assert len(shown("rejected/tasks", "--server", "aquarium")) == 1
    assert shown("sft_set", "--server", "aquarium") == []
