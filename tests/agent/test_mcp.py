"""Server environments and sessions: broken pins, isolation, failures of every kind."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from astra.agent.mcp import is_soft_error, open_server, prepare_workdir
from astra.agent.server_environments import ServerEnvironments, ServerError
from astra.records.message import CallStatus, ToolResult
from astra.records.tool import Launch
from walls_here import walls

TOY = Path(__file__).resolve().parents[1] / "fixtures" / "toy_server.py"


class Here(ServerEnvironments):
    """This interpreter as every environment: no installation."""

    def ensure(self, name: str) -> Path:
        return Path(sys.executable).parent

    def reads(self, name: str) -> tuple[Path, ...]:
        return (*super().reads(name), TOY.parent)


def toy(**env: str) -> Launch:
    code = f"import runpy; runpy.run_path({str(TOY)!r}, run_name='__main__')"
    return Launch(environment="toy", command="python", args=("-c", code), env=env)


def call(tmp_path: Path, tool: str, **arguments: object) -> ToolResult:
    async def run() -> ToolResult:
        async with open_server(toy(), tmp_path, 20.0, Here(tmp_path), walls()) as session:
            await session.list_tools()
            return await session.call_tool(tool, arguments)

    return asyncio.run(run())


def test_secrets_and_home_are_not_inherited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "hidden")
    result = call(tmp_path, "show_home")
    assert result.status is CallStatus.OK
    assert str(tmp_path) not in result.content
    assert os.environ["HOME"] not in result.content


def test_outcomes_are_told_apart(tmp_path: Path) -> None:
    assert call(tmp_path, "read_note", name="x").status is CallStatus.ERROR
    assert call(tmp_path, "fail_softly").status is CallStatus.SOFT_ERROR
    assert call(tmp_path, "crash").status is CallStatus.UNREACHABLE


def test_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    async def run() -> None:
        launch = Launch(environment="e", command="python", args=("-c", "raise SystemExit('boom')"))
        async with open_server(launch, tmp_path, 10.0, Here(tmp_path), walls()):
            raise AssertionError("started")

    with pytest.raises(ServerError, match="boom"):
        asyncio.run(run())


def test_error_of_the_caller_passes_unwrapped(tmp_path: Path) -> None:
    async def run() -> None:
        async with open_server(toy(), tmp_path, 20.0, Here(tmp_path), walls()):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(run())


def test_unbuildable_environment_is_an_error_and_not_left_half_made(tmp_path: Path) -> None:
    environments = ServerEnvironments(tmp_path, {"bad": ["not a requirement !!"]})
    for _ in range(2):
        with pytest.raises(ServerError, match="cannot be built"):
            environments.ensure("bad")
    assert not list(tmp_path.glob("*/.complete"))
    with pytest.raises(ServerError, match="not pinned"):
        environments.ensure("other")


def test_setup_makes_databases_and_stays_inside(tmp_path: Path) -> None:
    script = "CREATE TABLE t (a INTEGER);"
    prepare_workdir(Launch(environment="e", command="x", setup={"d.db.sql": script}), tmp_path)
    assert (tmp_path / "d.db").is_file()
    with pytest.raises(ServerError, match="outside"):
        prepare_workdir(Launch(environment="e", command="x", setup={"../a": ""}), tmp_path)


@pytest.mark.parametrize(
    ("value", "failed"),
    [
        ({"success": False}, True),
        ({"error": "no"}, True),
        ({"error": None, "rows": 1}, False),
        ("Database error: no such table", True),
        ("The error: rate is 3", False),
    ],
)
def test_soft_errors(value: object, failed: bool) -> None:
    assert is_soft_error(value, str(value)) is failed
