"""Real MCP servers in the cage: each starts, lists the tools it is known for, and answers."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from walls_here import refusal

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import live_servers

from astra.agent.server_environments import ServerError
from astra.sandbox.servers import CageWalls

NEED_MORE = {"get_statistics"}
"""Calls of examples that name a session of the server where they were recorded."""


@pytest.fixture(scope="module")
def tools(corpora: Path) -> Path:
    folder = os.environ.get(live_servers.VARIABLE)
    if not folder or not Path(folder).is_dir():
        pytest.skip(
            f"NOT TESTED: {live_servers.VARIABLE} names no folder of installed servers; make one "
            "with `python benchmarks/live_servers.py install --tools FOLDER`"
        )
    if refusal():
        pytest.skip(f"NOT TESTED: this machine builds no cage: {refusal()}")
    return Path(folder)


@pytest.mark.long
def test_thirty_servers_start_and_answer_in_the_cage(tools: Path) -> None:
    known = live_servers.corpus()
    answered: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}
    for server in known:
        try:
            answered[server.name] = asyncio.run(live_servers.tried(server, CageWalls(), tools))
        except ServerError as error:
            failed[server.name] = str(error)
    assert len(answered) >= 30, failed
    assert {one.name: list(one.tools) for one in known if one.name in answered} == {
        name: outcome["tools"] for name, outcome in answered.items()
    }
    calls = [said for outcome in answered.values() for said in outcome["results"]]
    done = [said for said in calls if ": ok: " in said]
    assert len(calls) >= 60
    bad = {said.split(":")[0] for said in calls if said not in done}
    failing = frozenset[str]().union(*(server.failing for server in known))
    assert bad <= failing | NEED_MORE, [s[:300] for s in calls if s not in done]
