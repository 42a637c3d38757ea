"""Server environments and sessions: broken pins, isolation, failures of every kind."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mcp_types
import pytest

from astra.agent.mcp import McpSession, is_soft_error, open_server, prepare_workdir
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


ODD = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("odd")
def deep(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value
@server.tool()
def say(text: str) -> str:
    return text
@server.tool()
def take(value: dict[str, object]) -> str:
    return "taken"
@server.tool()
def rows(levels: int) -> dict[str, object]:
    return {"rows": deep(levels), "n": 1}
server.run()
"""


def replies(tmp_path: Path, *calls: tuple[str, dict[str, object]]) -> list[ToolResult]:
    async def run() -> list[ToolResult]:
        launch = Launch(environment="odd", command="python", args=("-c", ODD))
        async with open_server(launch, tmp_path, 20.0, Here(tmp_path), walls()) as session:
            await session.list_tools()
            return [await session.call_tool(name, given) for name, given in calls]

    return asyncio.run(run())


def test_arguments_that_cannot_be_sent_fail_their_call_alone(tmp_path: Path) -> None:
    value: object = 1
    for _ in range(300):
        value = {"a": value}
    lost, done = replies(tmp_path, ("take", {"value": value}), ("take", {"value": {"a": 1}}))
    assert lost.status is CallStatus.ERROR
    assert lost.content.startswith("error: ")
    assert done.status is CallStatus.OK


ODD_TEXTS = ['{"x": "\\ud800"}', "[" * 300 + "]" * 300, '{"x": NaN}', '{"x": -Infinity}', "1e999"]


def content_of(text: str, structured: dict[str, object] | None = None) -> ToolResult:
    """What a session makes of a server's reply, such as other SDKs than ours may write."""
    block = mcp_types.TextContent(type="text", text=text)
    content: list[mcp_types.ContentBlock] = [block] if text else []

    async def reply(name: str, arguments: dict[str, object]) -> mcp_types.CallToolResult:
        return mcp_types.CallToolResult(content=content, structured_content=structured)

    named = SimpleNamespace(name="odd", title=None)
    info: Any = SimpleNamespace(server_info=named, instructions=None)
    client: Any = SimpleNamespace(call_tool=reply)
    session = McpSession(client, info, Path("/nowhere"), 5.0, None)
    return asyncio.run(session.call_tool("any", {}))


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_text_that_no_record_can_hold_as_json_stays_text(text: str) -> None:
    result = content_of(text)
    assert (result.status, result.value) == (CallStatus.OK, text)
    assert ToolResult.model_validate_json(result.model_dump_json()) == result
    assert content_of('{"x": [1.5, null]}').value == {"x": [1.5, None]}


def test_structured_content_that_no_record_can_hold_gives_way_to_the_text() -> None:
    odd: dict[str, object] = {"x": float("nan")}
    assert content_of("one", odd).value == "one"
    assert content_of("", {"result": "one"}).value == "one"
    lost = content_of("", odd)
    assert (lost.status, lost.content) == (CallStatus.ERROR, "error: NaN is not JSON")


def test_a_server_s_deep_result_is_kept_as_text(tmp_path: Path) -> None:
    deep, flat, surrogate = replies(
        tmp_path, ("rows", {"levels": 90}), ("rows", {"levels": 1}), ("say", {"text": ODD_TEXTS[0]})
    )
    assert isinstance(deep.value, str)
    assert flat.value == {"rows": [1], "n": 1}
    assert surrogate.value == ODD_TEXTS[0]
    for result in (deep, flat, surrogate):
        assert result.status is CallStatus.OK
        result.model_dump_json()


def environment_of(tmp_path: Path, *way: str) -> ServerEnvironments:
    """Environments whose Python is the last of the files, to which the others are links."""
    folder = tmp_path / "env"
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {(tmp_path / way[0]).parent}\n")
    places = [folder / "bin" / "python", *(tmp_path / one for one in way)]
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
    places[-1].touch()
    for link, target in itertools.pairwise(places):
        link.symlink_to(target)

    class Made(ServerEnvironments):
        def ensure(self, name: str) -> Path:
            return folder / "bin"

    return Made(tmp_path)


def test_a_server_reads_its_python_and_no_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "ada"))
    plain = environment_of(tmp_path / "plain", "ada/opt/python/bin/python3.11")
    assert plain.reads("e") == (
        tmp_path / "plain/env", tmp_path / "plain/ada/opt/python",
    )  # fmt: skip
    linked = environment_of(tmp_path, "ada/bin/python3", "opt/python/bin/python3.11")
    assert linked.reads("e") == (
        tmp_path / "env", tmp_path / "ada/bin/python3", tmp_path / "opt/python",
    )  # fmt: skip


@pytest.mark.parametrize("python", ["ada/bin/python3", "bin/python3"])
def test_a_python_among_a_user_s_files_is_refused(
    python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "ada"))
    with pytest.raises(ServerError, match="holds a user's files"):
        environment_of(tmp_path, python).reads("e")
