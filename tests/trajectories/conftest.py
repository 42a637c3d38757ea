from __future__ import annotations

from pathlib import Path

import pytest
from homes import OwnInterpreter, homes_server, toy_server

from astra.agent.server_environments import ServerEnvironments
from astra.records.tool import ToolServer


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def environments(tmp_path: Path) -> ServerEnvironments:
    return OwnInterpreter(tmp_path, {"toy": []})


@pytest.fixture
def homes() -> ToolServer:
    return homes_server()


@pytest.fixture
def toy() -> ToolServer:
    return toy_server()
