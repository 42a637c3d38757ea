"""Live servers in their cage: attacked from inside by a real MCP server, bounded, and ended."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from astra.agent.mcp import McpSession, open_server
from astra.agent.server_environments import ServerEnvironments, ServerError
from astra.agent.walls import ServerWalls
from astra.records.message import CallStatus
from astra.records.tool import Launch
from astra.sandbox import servers as servers_module
from astra.sandbox.servers import CageRefused, CageWalls, NoWalls, build_walls
from astra.settings import RuntimeConfig
from walls_here import refusal

SECRET = "sk-secret-of-the-host"
ATTACKER = Path(__file__).parent / "attacking_server.py"
OWN_TOOLS = {
    "echo", "fork_without_end", "hold_memory", "fill_the_disk", "flood", "leave_a_process",
    "plant_links", "show",
}  # fmt: skip
HARMLESS = {
    "read_a_file_of_the_host", "read_the_repository", "read_another_episode",
    "list_the_folders_of_the_host", "write_a_file_of_the_host", "write_into_another_episode",
    "follow_a_link_out_of_its_directory", "reach_a_service_of_the_host", "reach_a_unix_socket",
    "reach_an_abstract_socket", "signal_a_process_of_the_host", "see_processes_of_the_host",
    "read_the_environment_of_others", "open_devices", "run_a_program_of_its_own",
    "hold_memory_that_nothing_counts", "raise_its_limits",
}  # fmt: skip
"""May be run without a cage, to see that they work there."""
TIMEOUT_S = 60.0


class Here(ServerEnvironments):
    """This interpreter, and one copy of the attacker: nothing else of the tests is in reach."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, {})
        self.attacker = folder / "attacker"
        self.attacker.mkdir()
        (self.attacker / "server.py").write_text(ATTACKER.read_text(encoding="utf-8"), "utf-8")

    def ensure(self, name: str) -> Path:
        return Path(sys.executable).parent

    def reads(self, name: str) -> tuple[Path, ...]:
        return (*super().reads(name), self.attacker)


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)


@pytest.fixture
def caged() -> ServerWalls:
    if refusal():
        pytest.skip(f"NOT TESTED: this machine builds no cage: {refusal()}")
    return CageWalls()


Work = Callable[[McpSession], Awaitable[Any]]


def run(
    walls: ServerWalls, folder: Path, work: Work, network: bool = False, timeout_s: float = 60.0,
    **facts: Any,
) -> Any:  # fmt: skip
    """``work`` with a session of the attacker, who knows ``facts``."""
    host = {"pid": os.getpid(), "port": 9, "mark": "", **facts}
    environments = Here(folder)
    workdir = folder / "work"
    workdir.mkdir()
    launch = Launch(
        environment="here", command=Path(sys.executable).name, network=network,
        args=(str(environments.attacker / "server.py"),), setup={"mine.txt": "mine"},
        env={"ATTACK": json.dumps(host)},
    )  # fmt: skip

    async def opened() -> Any:
        async with open_server(launch, workdir, timeout_s, environments, walls) as session:
            return await work(session)

    return asyncio.run(opened())


def attacks(walls: ServerWalls, folder: Path, only: set[str] | None = None) -> dict[str, str]:
    """What each attack said. The host offers something to each."""
    (folder / "key").write_text(SECRET, encoding="utf-8")
    episode = folder / "episode"
    episode.mkdir()
    (episode / "notes.txt").write_text(SECRET, encoding="utf-8")
    unix, abstract = str(folder / "socket"), f"astra-attack-{os.getpid()}"

    async def work(session: McpSession) -> dict[str, str]:
        names = [tool["name"] for tool in await session.list_tools()]
        chosen = [n for n in names if n not in OWN_TOOLS and (only is None or n in only)]
        return {name: (await session.call_tool(name, {})).content for name in chosen}

    with (
        socket.create_server(("127.0.0.1", 0)) as service,
        socket.socket(socket.AF_UNIX) as one,
        socket.socket(socket.AF_UNIX) as other,
    ):
        one.bind(unix)
        other.bind(f"\0{abstract}")
        one.listen()
        other.listen()
        return run(
            walls, folder, work, key=str(folder / "key"), episode=str(episode), socket=unix,
            planted=str(folder / "planted"), repository=__file__, abstract=abstract,
            port=service.getsockname()[1],
        )  # fmt: skip


def test_every_attack_from_inside_is_denied(caged: ServerWalls, tmp_path: Path) -> None:
    found = attacks(caged, tmp_path)
    assert len(found) >= 60
    assert not {name: said for name, said in found.items() if not said.startswith("denied")}
    assert not (tmp_path / "planted").exists()
    assert not (tmp_path / "episode" / "planted").exists()
    assert SECRET not in str(found)


def test_the_attacks_work_where_there_is_no_cage(tmp_path: Path) -> None:
    found = attacks(NoWalls(), tmp_path, HARMLESS)
    assert set(found) == HARMLESS
    assert not {name: said for name, said in found.items() if said.startswith("denied")}


def test_processes_are_bounded_and_end_with_the_server(caged: ServerWalls, tmp_path: Path) -> None:
    mark = f"left-by-{os.getpid()}"

    async def work(session: McpSession) -> int:
        assert (await session.call_tool("leave_a_process", {})).content == "left"
        assert (await session.call_tool("echo", {"text": "still here"})).content == "still here"
        count = (await session.call_tool("fork_without_end", {})).value
        await until(lambda: bool(marked(mark)))
        return int(count)

    assert run(caged, tmp_path, work, mark=mark) < 256
    assert not marked(mark)


def marked(text: str) -> list[str]:
    """Processes of this machine whose command holds ``text``."""
    found: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if text.encode() in (folder / "cmdline").read_bytes():
                found.append(folder.name)
    return found


async def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("processes", [1, 4])
def test_a_server_that_takes_too_much_memory_is_ended(
    caged: ServerWalls, tmp_path: Path, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers_module, "MEMORY_MB", 600)

    async def work(session: McpSession) -> CallStatus:
        asked = {"megabytes": 1500, "processes": processes}
        return (await session.call_tool("hold_memory", asked)).status

    assert run(caged, tmp_path, work) is CallStatus.UNREACHABLE


def test_one_process_cannot_take_more_than_its_limit(
    caged: ServerWalls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(servers_module.LIMITS, "DATA", 512 << 20)

    async def work(session: McpSession) -> CallStatus:
        return (await session.call_tool("hold_memory", {"megabytes": 900, "processes": 1})).status

    assert run(caged, tmp_path, work) is CallStatus.ERROR


def test_what_it_writes_is_bounded_and_never_reaches_the_disk(
    caged: ServerWalls, tmp_path: Path
) -> None:
    async def work(session: McpSession) -> list[str]:
        return [
            (await session.call_tool("fill_the_disk", {"folder": folder})).content
            for folder in (".", "/tmp")
        ]

    own, temporary = run(caged, tmp_path, work)
    assert int(own.split()[0]) <= 256
    assert int(temporary.split()[0]) <= 64
    assert "No space left" in own
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == ["home", "mine.txt"]


@pytest.mark.parametrize(
    ("line", "lines"), [(9 << 20, 1), (20, 20_000), (1 << 20, 70)], ids=["huge", "many", "much"]
)
def test_a_server_that_floods_the_protocol_is_ended(
    caged: ServerWalls, tmp_path: Path, line: int, lines: int
) -> None:
    async def work(session: McpSession) -> CallStatus:
        asked = {"protocol": True, "line": line, "lines": lines}
        return (await session.call_tool("flood", asked)).status

    assert run(caged, tmp_path, work) is CallStatus.UNREACHABLE


def test_a_flood_of_messages_beside_the_protocol_is_dropped(
    caged: ServerWalls, tmp_path: Path
) -> None:
    async def work(session: McpSession) -> list[str]:
        asked = {"protocol": False, "line": 1 << 16, "lines": 200}
        return [
            (await session.call_tool("flood", asked)).content,
            (await session.call_tool("echo", {"text": "on"})).content,
        ]

    assert run(caged, tmp_path, work) == ["flooded", "on"]


def test_state_is_restored_inside_and_no_link_leads_the_host_astray(
    caged: ServerWalls, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(SECRET, encoding="utf-8")

    async def said(session: McpSession, path: str) -> str:
        return (await session.call_tool("show", {"path": path})).content

    async def work(session: McpSession) -> None:
        await session.call_tool("plant_links", {})
        await session.keep_state()
        await session.call_tool("fill_the_disk", {"folder": "/tmp"})
        await session.restore_state()
        assert await said(session, "mine.txt") == "mine"
        assert await said(session, "link") == f"link to {tmp_path / 'key'}"
        assert await said(session, "/tmp/left") == "nothing"
        assert await said(session, "pipe") == "nothing"
        assert SECRET not in await said(session, "home/server.log")

    run(caged, tmp_path, work, key=str(tmp_path / "key"))


def test_an_entry_may_ask_for_the_network_and_gets_no_more(
    caged: ServerWalls, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(SECRET, encoding="utf-8")

    async def work(session: McpSession) -> list[str]:
        names = ("reach_a_service_of_the_host", "read_a_file_of_the_host")
        return [(await session.call_tool(name, {})).content for name in names]

    with socket.create_server(("127.0.0.1", 0)) as service:
        facts: dict[str, Any] = {"port": service.getsockname()[1], "key": str(tmp_path / "key")}
        reached, read = run(caged, tmp_path, work, network=True, **facts)
    assert reached.startswith("GOT")
    assert read.startswith("denied")


def test_variables_that_an_entry_names_are_filled_and_no_others(
    caged: ServerWalls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEATHER_KEY", "w3ather")
    code = "import os; raise SystemExit(str(sorted(os.environ.items())))"
    launch = Launch(
        environment="e", command="python", args=("-c", code), env={"KEY": "${WEATHER_KEY}"}
    )

    async def start() -> None:
        async with open_server(launch, tmp_path, TIMEOUT_S, Here(tmp_path), caged):
            raise AssertionError("started")

    with pytest.raises(ServerError, match=r"\('KEY', 'w3ather'\)") as told:
        asyncio.run(start())
    assert SECRET not in str(told.value)
    monkeypatch.delenv("WEATHER_KEY")
    (tmp_path / "attacker" / "server.py").unlink()
    (tmp_path / "attacker").rmdir()
    with pytest.raises(ServerError, match="needs the environment variable WEATHER_KEY"):
        asyncio.run(start())


def test_without_walls_nothing_starts_and_the_remedies_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers_module, "TMP_MB", -1)  # no file system is that small

    async def work(session: McpSession) -> None:
        raise AssertionError("started")

    with pytest.raises(CageRefused, match=r"user namespaces.*live_servers: uncaged"):
        run(CageWalls(), tmp_path, work)


def test_uncaged_is_asked_for_by_name_and_never_silent(caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(build_walls(RuntimeConfig()), CageWalls)
    assert not caplog.text
    assert isinstance(build_walls(RuntimeConfig(live_servers="uncaged")), NoWalls)
    assert "UNCAGED" in caplog.text


def test_last_words_of_an_ended_server_reach_a_host_that_reads_late(
    caged: ServerWalls, tmp_path: Path
) -> None:
    reads, writes = os.pipe()
    more = fcntl.fcntl(reads, fcntl.F_GETPIPE_SZ) + 1000
    says = ("/bin/sh", "-c", f"head -c {more} /dev/zero >&2; echo last words >&2")
    with (
        caged.around(says, {}, tmp_path, (), network=False) as walled,
        subprocess.Popen(
            walled.command, env=dict(walled.environment), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=writes,
        ) as guard,
        os.fdopen(reads, "rb") as said,
    ):  # fmt: skip
        os.close(writes)
        assert guard.stdout is not None
        assert guard.stdout.read() == b""  # ends when the server has
        time.sleep(0.3)
        assert said.read().endswith(b"last words\n")
        assert guard.wait() == 0
