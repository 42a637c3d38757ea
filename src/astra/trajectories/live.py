"""Real MCP servers as environments: processes, their directories, and resume.

A ``ServerPool`` owns the processes. An episode borrows one: a fresh process, or, for servers
that keep nothing in memory, one whose directory was restored to what it was after the start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from astra.agent.episode import parse_arguments
from astra.agent.mcp import McpSession, open_server
from astra.agent.server_environments import ServerEnvironments, ServerError
from astra.agent.walls import ServerWalls
from astra.errors import AstraError
from astra.llm.served import served
from astra.records.message import CallStatus, ToolCall, ToolResult
from astra.records.tool import Launch, Tool, ToolServer
from astra.settings import RuntimeConfig

log = logging.getLogger("astra")


@dataclass
class ServerProcess:
    """A running server and the task that opened it (and alone may close it)."""

    launch: Launch
    session: McpSession
    leave: asyncio.Event
    owner: asyncio.Task[None]
    healthy: bool = True

    async def close(self) -> None:
        self.leave.set()
        await asyncio.wait([self.owner])


@dataclass
class ServerPool:
    """Server processes, at most ``limit`` at a time, each lent to one episode.

    Use it in ``async with``: processes that are idle at the end are ended in the event loop that
    started them.
    """

    environments: ServerEnvironments
    walls: ServerWalls
    timeout_s: float
    limit: int
    reset_in_place: Collection[str] = ()
    started: int = 0
    _idle: list[ServerProcess] = field(default_factory=list)
    _alive: int = 0
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def acquire(self, launch: Launch) -> ServerProcess:
        """A process in its initial state. Raises ServerError if it does not start."""
        async with self._changed:
            while True:
                for process in self._idle:
                    if process.launch == launch:
                        self._idle.remove(process)
                        return process
                if self._alive < self.limit:
                    self._alive += 1
                    break
                if self._idle:
                    oldest = self._idle.pop(0)
                    try:
                        await oldest.close()
                    finally:  # it ends also if whoever waits for that is out of time
                        self._alive -= 1
                    continue
                await self._changed.wait()
        try:
            return await self._start(launch)
        except BaseException:
            await self._gone()
            raise

    async def release(self, process: ServerProcess) -> None:
        """Take a process back: restored for the next episode, or ended."""
        reusable = process.launch.environment in self.reset_in_place and process.healthy
        if not reusable or process.owner.done():
            await self._end(process)
            return
        try:
            await process.session.restore_state()
        except AstraError as error:  # the server's doing: its episode is over, and was sound
            log.warning("%s: %s; it serves no further episode", process.launch.command, error)
            await self._end(process)
            return
        except BaseException:  # else nobody would end it, or count it out
            await self._end(process)
            raise
        self._idle.append(process)
        async with self._changed:
            self._changed.notify()

    async def close(self) -> None:
        """End all idle processes; borrowed ones are their borrowers' to release."""
        while self._idle:
            await self._end(self._idle.pop())

    async def _end(self, process: ServerProcess) -> None:
        await process.close()
        await self._gone()

    async def _gone(self) -> None:
        async with self._changed:
            self._alive -= 1
            self._changed.notify()

    async def _start(self, launch: Launch) -> ServerProcess:
        opened: asyncio.Future[ServerProcess] = asyncio.get_running_loop().create_future()
        owner = asyncio.create_task(self._own(launch, opened))
        try:
            return await asyncio.shield(opened)
        except asyncio.CancelledError:
            owner.cancel()
            await asyncio.wait([owner])
            raise

    async def _own(self, launch: Launch, opened: asyncio.Future[ServerProcess]) -> None:
        """Open and close in one task: the SDK's cancel scopes may not change tasks."""
        leave = asyncio.Event()
        try:
            with tempfile.TemporaryDirectory(prefix="astra-server-") as scratch:
                async with open_server(
                    launch, Path(scratch), self.timeout_s, self.environments, self.walls
                ) as session:
                    if launch.environment in self.reset_in_place:
                        await session.keep_state()
                    self.started += 1
                    owner = asyncio.current_task()
                    assert owner is not None
                    opened.set_result(ServerProcess(launch, session, leave, owner))
                    await leave.wait()
        except Exception as error:
            if not opened.done():
                opened.set_exception(error)
            # A fault after that is no news: the process is out of use already.


def server_pool(
    environments: ServerEnvironments,
    walls: ServerWalls,
    runtime: RuntimeConfig,
    reset_in_place: Collection[str],
) -> ServerPool:
    """The pool of a stage; see ``TrajectoriesConfig`` for ``reset_in_place``."""
    # More processes than that wait for a core and only take memory.
    limit = max(1, min(runtime.concurrency, 2 * (os.cpu_count() or 1)))
    return ServerPool(environments, walls, runtime.mcp_timeout_s, limit, frozenset(reset_in_place))


class McpEnv:
    """One episode on a real server. Opens its process at the first call.

    Calls run one after the other in the order they arrive: a stateful server would otherwise
    answer parallel calls differently from run to run. A lost process raises ServerError.
    """

    def __init__(self, server: ToolServer, tools: tuple[Tool, ...], pool: ServerPool) -> None:
        if server.launch is None:
            raise ServerError(f"server {server.name} ({server.id}) has no launch specification")
        self._launch = server.launch
        self._tools = tools
        self._by_name = {tool.name: tool for tool in tools}
        self._pool = pool
        self._process: ServerProcess | None = None
        self._turn = asyncio.Lock()

    @property
    def tools(self) -> tuple[Tool, ...]:
        return self._tools

    async def execute(self, call: ToolCall) -> ToolResult:
        tool = self._by_name[call.name]
        arguments = parse_arguments(tool, call.arguments)
        async with self._turn:
            if self._process is None:
                self._process = await self._pool.acquire(self._launch)
            process = self._process
            try:
                with served():
                    result = await process.session.call_tool(
                        tool.original_name or tool.name, tool.original_arguments(arguments)
                    )
            except asyncio.CancelledError:
                process.healthy = False
                raise
        if result.status == CallStatus.UNREACHABLE:
            process.healthy = False
            raise ServerError(f"{self._launch.command}: {result.content}")
        if result.status == CallStatus.TIMEOUT:
            # It may still be at work on the call: nobody else shall get this process.
            process.healthy = False
        return _labelled(result)

    async def close(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            with contextlib.suppress(ServerError):
                await self._pool.release(process)


def _labelled(result: ToolResult) -> ToolResult:
    """Errors start with ``error:`` whatever the server's style, as in every environment."""
    if result.status != CallStatus.ERROR or result.content.lower().startswith("error"):
        return result
    return result.model_copy(update={"content": f"error: {result.content}"})
