"""Against a real MCP server over stdio."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from astra.agent.server_environments import ServerEnvironments, ServerError
from astra.records.message import CallStatus, ToolCall, ToolResult
from astra.records.tool import ToolServer
from astra.store.journal import Journal
from astra.trajectories.journaled import JournaledEnv
from astra.trajectories.live import McpEnv, ServerPool, ServerProcess
from walls_here import walls


def call(name: str, /, **arguments: Any) -> ToolCall:
    return ToolCall(id="call_0", name=name, arguments=json.dumps(arguments))


def with_pool(
    environments: ServerEnvironments,
    work: Callable[[ServerPool], Awaitable[Any]],
    timeout_s: float = 20,
    reset: tuple[str, ...] = (),
) -> Any:
    async def run() -> Any:
        pool = ServerPool(environments, walls(), timeout_s, 2, reset)
        try:
            return await work(pool)
        finally:
            await pool.close()

    return asyncio.run(run())


def test_statuses_state_and_isolation(
    toy: ToolServer, environments: ServerEnvironments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")

    async def work(pool: ServerPool) -> list[ToolResult]:
        first, second = McpEnv(toy, toy.tools, pool), McpEnv(toy, toy.tools, pool)
        await first.execute(call("write_note", name="hello", text="changed"))
        results = [
            await first.execute(call("read_note", name="hello")),
            await second.execute(call("read_note", name="hello")),
            await first.execute(call("read_note", name="nothing")),
            await first.execute(call("fail_softly")),
            await first.execute(call("show_home")),
        ]
        await first.close()
        await second.close()
        assert pool.started == 2
        return results

    changed, fresh, missing, soft, home = with_pool(environments, work)
    assert changed.content == "changed"
    assert fresh.content == "good day"
    assert missing.status == CallStatus.ERROR
    assert missing.content.lower().startswith("error")
    assert soft.status == CallStatus.SOFT_ERROR
    assert home.content == "home []"


def test_parallel_calls_reach_the_server_in_order(
    toy: ToolServer, environments: ServerEnvironments
) -> None:
    async def work(pool: ServerPool) -> list[ToolResult]:
        env = McpEnv(toy, toy.tools, pool)
        results = await asyncio.gather(*(env.execute(call("count_calls")) for _ in range(5)))
        await env.close()
        return results

    assert [one.value for one in with_pool(environments, work)] == [1, 2, 3, 4, 5]


def test_reset_in_place_restores_the_directory_and_keeps_the_process(
    toy: ToolServer, environments: ServerEnvironments
) -> None:
    async def work(pool: ServerPool) -> None:
        for expected in (1, 2):
            env = McpEnv(toy, toy.tools, pool)
            assert (await env.execute(call("read_note", name="hello"))).content == "good day"
            missing = await env.execute(call("read_note", name="extra"))
            assert missing.status == CallStatus.ERROR
            await env.execute(call("write_note", name="hello", text="changed"))
            await env.execute(call("write_note", name="extra", text="more"))
            assert (await env.execute(call("count_calls"))).value == expected
            await env.close()
        assert pool.started == 1

    with_pool(environments, work, reset=("toy",))


def test_a_hanging_tool_times_out_and_its_process_is_not_lent_again(
    toy: ToolServer, environments: ServerEnvironments
) -> None:
    async def work(pool: ServerPool) -> ToolResult:
        env = McpEnv(toy, toy.tools, pool)
        await env.execute(call("count_calls"))
        result = await env.execute(call("hang", seconds=90))
        await env.close()
        other = McpEnv(toy, toy.tools, pool)
        assert (await other.execute(call("count_calls"))).value == 1
        await other.close()
        return result

    result = with_pool(environments, work, timeout_s=10, reset=("toy",))
    assert result.status == CallStatus.TIMEOUT


def test_a_crash_is_an_error_of_the_machinery(
    toy: ToolServer, environments: ServerEnvironments
) -> None:
    async def work(pool: ServerPool) -> None:
        env = McpEnv(toy, toy.tools, pool)
        await env.execute(call("count_calls"))
        with pytest.raises(ServerError):
            await env.execute(call("crash"))
        await env.close()

    with_pool(environments, work, reset=("toy",))


def test_a_dead_server_says_what_was_tried(
    toy: ToolServer, environments: ServerEnvironments
) -> None:
    assert toy.launch is not None
    dead = toy.model_copy(update={"launch": toy.launch.model_copy(update={"args": ("-c", "1/0")})})

    async def work(pool: ServerPool) -> None:
        for _ in range(3):  # a failed start must give its place back
            env = McpEnv(dead, dead.tools, pool)
            with pytest.raises(ServerError, match="does not start"):
                await env.execute(call("count_calls"))
            await env.close()

    with_pool(environments, work)


def test_who_gives_up_waiting_for_an_idle_process_to_end_keeps_no_place(
    toy: ToolServer, environments: ServerEnvironments, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert toy.launch is not None
    other = toy.launch.model_copy(update={"setup": {"hello.txt": "good evening"}})
    close = ServerProcess.close

    async def slowly(process: ServerProcess) -> None:
        await asyncio.sleep(0.2)
        await close(process)

    async def work() -> str:
        async with ServerPool(environments, walls(), 20, 1, ("toy",)) as pool:
            assert toy.launch is not None
            await pool.release(await pool.acquire(toy.launch))
            monkeypatch.setattr(ServerProcess, "close", slowly)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await pool.acquire(other)
            async with asyncio.timeout(60):
                process = await pool.acquire(other)
            note = await process.session.call_tool("read_note", {"name": "hello"})
            await pool.release(process)
            return note.content

    assert asyncio.run(work()) == "good evening"


def test_a_process_that_cannot_be_restored_is_ended_and_keeps_no_place(
    toy: ToolServer, environments: ServerEnvironments, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults: list[Exception] = [OSError("the disk is full"), ServerError("a tree without end")]

    async def fails(session: object) -> None:
        raise faults[0]

    monkeypatch.setattr("astra.agent.mcp.McpSession.restore_state", fails)

    async def work() -> None:
        async with ServerPool(environments, walls(), 20, 1, ("toy",)) as pool:
            assert toy.launch is not None
            process = await pool.acquire(toy.launch)
            with pytest.raises(OSError, match="disk"):
                await pool.release(process)
            assert process.owner.done()
            faults.pop(0)
            async with asyncio.timeout(60):
                process = await pool.acquire(toy.launch)
            await pool.release(process)  # the server's own fault, and its episode is over
            assert process.owner.done()
            assert pool.started == 2

    asyncio.run(work())


def test_a_killed_episode_resumes_from_its_journal(
    toy: ToolServer, environments: ServerEnvironments
) -> None:
    steps = [call("write_note", name="a", text="x"), call("count_calls"), call("count_calls")]

    def run(upto: int) -> tuple[list[str], int]:
        async def work(pool: ServerPool) -> tuple[list[str], int]:
            journal = Journal("test")
            env = JournaledEnv(McpEnv(toy, toy.tools, pool), journal, "one")
            texts = [(await env.execute(step)).content for step in steps[:upto]]
            await env.close()
            journal.close()
            return texts, pool.started

        return with_pool(environments, work)

    whole, started = run(2)
    assert started == 1
    assert run(2) == (whole, 0), "a journalled episode starts no server"
    resumed, started = run(3)
    assert started == 1
    assert resumed == [*whole, "2"], "the state of the replayed calls was rebuilt"


class Printing:
    """A server whose results have keys in an order that means something."""

    tools = ()

    async def execute(self, call: ToolCall) -> ToolResult:
        value = {"23:00": "rain", "00:00": {"z": 1, "a": 2}}
        return ToolResult(status=CallStatus.OK, content=json.dumps(value), value=value)

    async def close(self) -> None: ...


def test_a_resumed_episode_has_results_in_the_servers_own_order() -> None:
    async def once() -> ToolResult:
        with Journal("order") as journal:
            return await JournaledEnv(Printing(), journal, "e").execute(call("forecast"))

    fresh, replayed = asyncio.run(once()), asyncio.run(once())
    assert replayed == fresh
    assert json.dumps(replayed.value) == fresh.content
