"""Estimates of the SFT track, held against the asks that a build really makes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from builds import Build, close, made

from astra.estimate.episodes import episodes_of
from astra.estimate.plans import chains_of, tasks_of
from astra.estimate.servers import servers_of
from astra.records.message import MessageRole
from astra.records.trajectory import Trajectory
from astra.scoring.config import SFTSetConfig
from astra.scoring.estimate import grade_asks
from astra.settings import load
from astra.store.tables import read_records
from astra.tasking.config import TasksConfig
from astra.tasking.estimate import expected_tasks, task_asks
from astra.toolbank.config import ToolsConfig
from astra.toolbank.estimate import expected_servers, tool_asks
from astra.toolbank.sources import load_sources
from astra.toolgraph.config import ChainsConfig, GraphConfig
from astra.toolgraph.estimate import expected_chains, judging_asks, proposal_asks
from astra.trajectories.config import TrajectoriesConfig
from astra.trajectories.estimate import TURN, episode_asks, expected_episodes

SOURCES = {
    "documents": [
        {"path": "sources/documents/rapidapi/*.json", "format": "rapidapi", "licence": "MIT"},
        {"path": "sources/documents/openapi/*.yaml", "format": "openapi", "licence": "MIT"},
        {"path": "sources/documents/business/b*.yaml", "format": "mcp", "licence": "MIT"},
    ]
}
OVERRIDES = (
    "scale=test",
    "teacher=openai",
    "judge=openai",
    "emulator=openai",
    "user=openai",
    "trajectories.agent={backend: offline, model: v1}",
    "trajectories.conversations.share=0.4",
    "tools.sources=[mine.yaml]",
    "tools.domains.by=teacher",
    "chains.max_chains=6",
    "chains.operators.back_translation={models: [{backend: openai, model: other}],"
    " temperature: 0.6, attempts: 3, min_share: 0.5}",
    "tasks.augment={share: 0.5, diverse: 1, complicate: 1, persona: 1}",
    "tasks.unsolvable={missing_function: 0.1, missing_parameter: 0.1, irrelevant: 0.05}",
)
"""Scale test with few servers, and everything on that other templates are for."""
STAGES = ("tools", "graph", "chains", "tasks", "trajectories", "sft_set")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Iterator[Build]:
    def more(folder: Path) -> None:
        (folder / "mine.yaml").write_text(yaml.safe_dump(SOURCES))

    yield from made(tmp_path_factory.mktemp("sft"), root, OVERRIDES, STAGES, more)


@pytest.fixture(autouse=True)
def _in_the_workspace(built: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(built.folder)


def test_tools(built: Build) -> None:
    servers = servers_of(built.table("tools"))
    config = load("tools", ToolsConfig)
    before = expected_servers([load_sources(Path("mine.yaml"))], config)
    assert before.rows == servers.rows, "documents are read"
    assert (before.tools, before.emulated) == (servers.tools, 1)
    close(tool_asks(config, before), built.heard["tools"])


def test_graph(built: Build) -> None:
    servers = servers_of(built.table("tools"))
    close(proposal_asks(load("graph", GraphConfig), servers), built.heard["graph"])


def test_chains(built: Build) -> None:
    servers = servers_of(built.table("tools"))
    asked = judging_asks(load("chains", ChainsConfig), servers.rows, servers)
    assert {one.role for one in asked} == {"vote", "back_translation"}
    close(asked, built.heard["chains"])


def test_tasks(built: Build) -> None:
    chains, servers = chains_of(built.table("chains")), servers_of(built.table("tools"))
    close(task_asks(load("tasks", TasksConfig), chains, servers), built.heard["tasks"])


def test_trajectories(built: Build) -> None:
    config = load("trajectories", TrajectoriesConfig)
    tasks, servers = tasks_of(built.table("tasks")), servers_of(built.table("tools"))
    asked = episode_asks(config, tasks, servers)
    heard = built.heard["trajectories"]
    # What rules make up as a result is shorter than what a service sends.
    close([one for one in asked if one.kind != TURN], heard, factor=2)
    (turns,) = (one.asks for one in asked if one.kind == TURN)
    episodes = list(read_records(built.table("trajectories"), Trajectory))
    really = sum(m.role == MessageRole.ASSISTANT for one in episodes for m in one.messages)
    assert turns.about == pytest.approx(really, rel=0.6)


def test_sft_set(built: Build) -> None:
    episodes = episodes_of(built.table("trajectories"))
    close(grade_asks(load("sft_set", SFTSetConfig), episodes), built.heard["sft_set"])


def test_each_stage_begins_by_saying_what_it_will_ask(built: Build) -> None:
    roles = ("teacher", "teacher", "vote", "teacher", "emulator", "judge")
    for stage, role in zip(STAGES, roles, strict=True):
        told = built.logged[stage]
        assert told[0].startswith(f"to be asked: {role} zai-org/GLM-4.6-FP8: "), stage
        assert any(line.startswith("no cap is set") for line in told[:3]), stage
    assert not any("agent" in line for line in built.logged["trajectories"][:3]), "rules act"


def test_without_tables_the_guess_is_near_too(built: Build) -> None:
    """Only the servers are known: every yield from there on is a guess."""
    servers = servers_of(built.table("tools"))
    chains = expected_chains(load("chains", ChainsConfig), servers.rows, servers)
    config = load("tasks", TasksConfig)
    tasks = expected_tasks(config, chains, servers)
    close(task_asks(config, chains, servers), built.heard["tasks"], factor=2)
    played = load("trajectories", TrajectoriesConfig)
    episodes = expected_episodes(played, tasks, servers)
    assert not episodes.rows.counted
    heard = built.heard["sft_set"]
    close(grade_asks(load("sft_set", SFTSetConfig), episodes), heard, factor=2.5)
