"""Streamable HTTP with real server processes: started for the caller, already running, broken."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from astra.agent import mcp_http
from astra.agent.mcp import open_server
from astra.agent.mcp_http import MissingVariable, filled, free_port
from astra.agent.server_environments import ServerEnvironments, ServerError
from astra.records.message import CallStatus, ToolResult
from astra.records.tool import HttpLaunch, ToolServer
from walls_here import walls

TOY = Path(__file__).resolve().parents[1] / "fixtures" / "toy_server.py"
TIMEOUT_S = 60.0
"""Generous: the first import of the SDK is slow on a busy machine."""


class Here(ServerEnvironments):
    """This interpreter as every environment: no installation."""

    def ensure(self, name: str) -> Path:
        return Path(sys.executable).parent

    def reads(self, name: str) -> tuple[Path, ...]:
        return (*super().reads(name), TOY.parent)


def started(**env: str) -> HttpLaunch:
    return HttpLaunch(
        environment="toy",
        command="python",
        args=(str(TOY), "--http", "{port}"),
        env=env,
        url="http://127.0.0.1:{port}/mcp",
        setup={"greeting.txt": "hello"},
        network=True,
    )


async def calls(
    launch: HttpLaunch, workdir: Path, *wanted: tuple[str, dict[str, object]]
) -> list[ToolResult]:
    async with open_server(launch, workdir, TIMEOUT_S, Here(workdir), walls()) as session:
        assert session.server_name == "toy"
        assert {"read_note", "hang"} <= {tool["name"] for tool in await session.list_tools()}
        assert alive(str(workdir)) or not launch.command
        return [await session.call_tool(name, arguments) for name, arguments in wanted]


def alive(mark: str) -> list[str]:
    """Processes that were given ``mark``; other tests have servers of their own meanwhile."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"MARK={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(folder.name)
    return found


def test_own_process_is_isolated_and_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "hidden")
    note, home, soft, missing = asyncio.run(
        calls(
            started(MARK=str(tmp_path)),
            tmp_path,
            ("read_note", {"name": "greeting"}),
            ("show_home", {}),
            ("fail_softly", {}),
            ("read_note", {"name": "other"}),
        )
    )
    assert note.value == "hello"
    assert home.status is CallStatus.OK
    assert "SECRET" not in home.content
    assert os.environ["HOME"] not in home.content
    assert soft.status is CallStatus.SOFT_ERROR
    assert missing.status is CallStatus.ERROR
    assert not alive(str(tmp_path))


def test_two_servers_are_never_given_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if nothing listens on the first one's port yet when the second asks."""
    one, two = free_port(), free_port()
    offered = iter([one, one, two, one])
    monkeypatch.setattr(mcp_http, "free_port", lambda: next(offered))
    with mcp_http.reserved_port() as first, mcp_http.reserved_port() as second:
        assert (first, second) == (one, two)
    with mcp_http.reserved_port() as again:
        assert again == one


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that somebody else started."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, str(TOY), "--http", str(port)],
        cwd=tmp_path_factory.mktemp("remote"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def test_running_server_is_reached_and_keeps_its_state(remote: str, tmp_path: Path) -> None:
    launch = HttpLaunch(url=remote)
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            (first,) = asyncio.run(calls(launch, tmp_path, ("count_calls", {})))
            break
        except ServerError:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    (second,) = asyncio.run(calls(launch, tmp_path, ("count_calls", {})))
    assert (first.value, second.value) == (1, 2)


def test_unreachable_and_broken_servers_say_so(tmp_path: Path) -> None:
    async def reach(launch: HttpLaunch) -> None:
        async with open_server(launch, tmp_path, 5.0, Here(tmp_path), walls()):
            raise AssertionError("reached")

    nowhere = HttpLaunch(url=f"http://127.0.0.1:{free_port()}/mcp")
    with pytest.raises(ServerError, match="does not start"):
        asyncio.run(reach(nowhere))
    ended = HttpLaunch(
        environment="e", command="python", args=("-c", "raise SystemExit('boom')"),
        url="http://127.0.0.1:{port}/mcp",
    )  # fmt: skip
    with pytest.raises(ServerError, match=r"ended with status 1.*boom"):
        asyncio.run(reach(ended))
    with pytest.raises(ServerError, match="ASTRA_NO_SUCH_TOKEN"):
        asyncio.run(reach(HttpLaunch(url="http://x/mcp", headers={"A": "${ASTRA_NO_SUCH_TOKEN}"})))


def test_headers_are_filled_at_the_last_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASTRA_TOKEN", "t0k")
    assert filled({"Authorization": "Bearer ${ASTRA_TOKEN}"}, "a header") == {
        "Authorization": "Bearer t0k"
    }
    monkeypatch.delenv("ASTRA_TOKEN")
    with pytest.raises(MissingVariable, match=r"a header needs .* ASTRA_TOKEN"):
        filled({"Authorization": "Bearer ${ASTRA_TOKEN}"}, "a header")


def test_records_tell_both_kinds_of_launch_apart() -> None:
    server = ToolServer.model_validate(
        {
            "name": "s", "title": "S", "description": "", "domain": "d", "source": "x",
            "licence": "MIT", "language": "en", "execution": "live", "deterministic": False,
            "launch": {"url": "http://h/mcp"}, "tools": [],
        }
    )  # fmt: skip
    again = ToolServer.model_validate(server.model_dump(mode="json"))
    assert isinstance(again.launch, HttpLaunch)
    assert again == server
