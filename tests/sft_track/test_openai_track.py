"""The same track through the openai backend, against a scripted OpenAI-compatible server.

The server knows what it is sent and nothing else: it answers each prompt as the offline rules
answered the ask behind it, so the data must come out the same, byte for byte where no model's
name is stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from track import STAGES, Script, configure, prepare, run, servers

from astra.llm.build import teachers_from
from astra.records.message import MessageRole
from astra.records.task import Task, TaskKind
from astra.records.tool import ToolServer
from astra.records.trajectory import SFTSample, Trajectory
from astra.store.tables import read_records
from chat_server import ChatServer

# A model as user would write wishes of its own, which no rule has answers to.
MODELS = {
    "tasks": {"teacher": "writer", "judge": "judge"},
    "trajectories": {"agent": "agent", "emulator": "emulator"},
    "sft_set": {"judge": "judge"},
}


@pytest.fixture(scope="module")
def offline(
    root: Path, tmp_path_factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch
) -> tuple[Path, Script]:
    """The track by rules, every ask and turn overheard."""
    script = Script()
    folder = tmp_path_factory.mktemp("offline")
    patch.setenv("ASTRA_CACHE", str(folder / "cache"))
    patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
    patch.chdir(root)
    prepare(folder, servers())
    patch.chdir(folder)
    with teachers_from(script.factory):
        for stage in STAGES:
            run(stage)
    script.learn_turns(folder / "data/trajectories.parquet")
    return folder, script


Run = Callable[[], tuple[Path, list[dict[str, Any]]]]


@pytest.fixture(scope="module")
def online(
    root: Path, tmp_path_factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch,
    offline: tuple[Path, Script],
) -> tuple[Path, list[dict[str, Any]]]:  # fmt: skip
    """The track by models behind the scripted server, and the requests it was sent."""
    folder = tmp_path_factory.mktemp("online")
    patch.setenv("ASTRA_CACHE", str(folder / "cache"))
    patch.chdir(root)
    prepare(folder, servers())
    patch.chdir(folder)
    with ChatServer(default=offline[1].answer) as server:
        configure(folder, server.url, **MODELS)
        for stage in STAGES:
            run(stage)
    return folder, server.requests


def test_the_same_answers_make_the_same_data(
    offline: tuple[Path, Script], online: tuple[Path, list[dict[str, Any]]]
) -> None:
    made, folder = offline[0], online[0]
    tasks = [path / "data/tasks.parquet" for path in (made, folder)]
    assert tasks[0].read_bytes() == tasks[1].read_bytes()
    episodes = [
        {
            (t.task_id, t.sample): t
            for t in read_records(path / "data/trajectories.parquet", Trajectory)
        }
        for path in (made, folder)
    ]
    assert episodes[0].keys() == episodes[1].keys()
    for key, one in episodes[0].items():
        other = episodes[1][key]
        assert other.policy == "openai:agent"
        assert (other.messages, other.calls, other.tools) == (one.messages, one.calls, one.tools)
    kept = [
        {s.messages for s in read_records(path / "data/sft_set.parquet", SFTSample)}
        for path in (made, folder)
    ]
    assert kept[0] == kept[1]


def test_every_role_was_asked_and_the_agent_called_natively(
    online: tuple[Path, list[dict[str, Any]]],
) -> None:
    models = {body["model"] for body in online[1]}
    assert models == {"writer", "judge", "agent", "emulator"}
    acting = [body for body in online[1] if body["model"] == "agent"]
    assert all(body["tools"][0]["type"] == "function" for body in acting)
    assert any(m["role"] == "tool" for body in acting for m in body["messages"])
    talks = [
        one
        for one in read_records(online[0] / "data/trajectories.parquet", Trajectory)
        if sum(m.role == MessageRole.USER for m in one.messages) > 1
    ]
    assert len(talks) >= 3
    assert any(one.follow_ups for one in talks)


def test_a_second_build_asks_nothing(
    offline: tuple[Path, Script], online: tuple[Path, list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(online[0])
    before = {s: Path(f"data/{s}.parquet").read_bytes() for s in STAGES}
    with ChatServer(default=offline[1].answer) as server:
        configure(online[0], server.url, **MODELS)
        for stage in STAGES:
            run(stage)
    assert server.requests == []
    assert {s: Path(f"data/{s}.parquet").read_bytes() for s in STAGES} == before


def test_a_changed_document_asks_about_its_own_server_only(
    root: Path, offline: tuple[Path, Script], online: tuple[Path, list[dict[str, Any]]],
    patch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    """After a change to Homes, what is asked concerns Homes, or its questions put to others."""
    homes, *others = servers()
    tool = homes.tools[0].model_copy(update={"description": "look up the price of a listing"})
    changed = ToolServer.model_validate(
        homes.model_copy(update={"id": "", "tools": (tool, *homes.tools[1:])}).model_dump()
    )
    script = Script()
    patch.chdir(root)
    prepare(tmp_path, [changed, *others])
    patch.chdir(tmp_path)
    with teachers_from(script.factory):
        for stage in STAGES:
            run(stage)
    script.learn_turns(tmp_path / "data/trajectories.parquet")
    with ChatServer(default=script.answer) as server:
        configure(tmp_path, server.url, **MODELS)
        for stage in STAGES:
            run(stage)
    questions = {
        task.question
        for folder in (online[0], tmp_path)
        for task in read_records(folder / "data/tasks.parquet", Task)
        if task.server_id in (homes.id, changed.id) or task.kind is TaskKind.IRRELEVANT
    }
    assert server.requests
    foreign = [
        text
        for body in server.requests
        if "Homes" not in (text := json.dumps(body["messages"], ensure_ascii=False))
        and not any(json.dumps(q, ensure_ascii=False)[1:-1] in text for q in questions)
    ]
    assert foreign == []
    assert len(server.requests) < len(online[1])
