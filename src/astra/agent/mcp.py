"""Live MCP servers over stdio and streamable HTTP: pinned, isolated processes, typed results.

Each server runs from its own virtual environment (``ServerEnvironments``), in a working
directory and HOME of its own, with a minimal environment that inherits no secret, behind the
walls it is given (``open_server``). Typical use::

    environments, walls = ServerEnvironments(), build_walls(runtime)
    async with open_server(server.launch, workdir, 30.0, environments, walls) as session:
        tools = await session.list_tools()
        result = await session.call_tool("gross_margin", {"revenue": 10, "cogs": 4})
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import tempfile
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, Any, TextIO, cast

import anyio
import mcp_types
from mcp import ClientSession, MCPError, StdioServerParameters, stdio_client
from pydantic import ValidationError

from astra.agent.mcp_http import filled, http_streams, reserved_port, running
from astra.agent.server_environments import ServerEnvironments, ServerError
from astra.agent.walls import ServerWalls, WalledServer
from astra.errors import StageStop
from astra.records.message import CallStatus, ToolResult
from astra.records.tool import HttpLaunch, Launch
from astra.text.strict_json import finite, no_constant, refuse_unstorable

DATABASE_SCRIPT = ".sql"
"""The ending of scripts: setup file ``x.db.sql`` creates the SQLite database ``x.db``."""
MAX_PAGES = 50
_SOFT_ERROR_LINE = re.compile(
    r"(?!(?:the|an|this) )(?:[a-z]+ )?error(?: [a-z ]{1,40})?:", re.IGNORECASE
)


class McpSession:
    """An initialised connection to one running server."""

    def __init__(
        self,
        session: ClientSession,
        info: mcp_types.InitializeResult,
        workdir: Path,
        timeout_s: float,
        walled: WalledServer | None,
    ) -> None:
        self._session = session
        self._workdir = workdir
        self._walled = walled
        self._timeout_s = timeout_s
        self.server_name = info.server_info.name
        self.server_title = info.server_info.title or ""
        self.instructions = info.instructions or ""

    async def list_tools(self) -> list[dict[str, Any]]:
        """All pages of ``tools/list`` in the protocol's spelling (name, inputSchema, ...).

        Raises ServerError for a list that breaks the protocol.
        """
        tools: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            params = mcp_types.PaginatedRequestParams(cursor=cursor) if cursor else None
            try:
                with anyio.fail_after(self._timeout_s):
                    page = await self._session.list_tools(params=params)
            except (MCPError, ValidationError) as error:
                first = " ".join(str(error).split())[:200]
                raise ServerError(f"{self.server_name}: tools/list is not valid: {first}") from None
            tools += [
                tool.model_dump(mode="json", by_alias=True, exclude_none=True)
                for tool in page.tools
            ]
            cursor = page.next_cursor
            if not cursor:
                return tools
        raise ServerError(f"{self.server_name}: tools/list has more than {MAX_PAGES} pages")

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run one call by the server's own tool name; every outcome is a ToolResult.

        ERROR: ``isError`` or a protocol error. SOFT_ERROR: reported success, but the payload is
        a failure. TIMEOUT, UNREACHABLE: no answer in time, the process is gone.
        """
        try:
            with anyio.fail_after(self._timeout_s):
                reply = await self._session.call_tool(name, dict(arguments))
            return self._result(reply)
        except TimeoutError:
            return _failure(CallStatus.TIMEOUT, f"{name} gave no answer in {self._timeout_s:g} s")
        except MCPError as error:
            lost = error.error.code == mcp_types.CONNECTION_CLOSED
            status = CallStatus.UNREACHABLE if lost else CallStatus.ERROR
            return _failure(status, self._scrub(error.error.message))
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            return _failure(CallStatus.UNREACHABLE, "the server process has ended")
        except (RuntimeError, ValueError) as error:
            # The SDK's words for arguments that it cannot send and for a result that violates the
            # tool's own output schema; ours for one that no record can hold.
            said = str(error).splitlines() or [type(error).__name__]
            return _failure(CallStatus.ERROR, self._scrub(said[0]))

    async def keep_state(self) -> None:
        """Remember the working directory as it is now. Raises AstraError."""
        await anyio.to_thread.run_sync(self._process().keep)

    async def restore_state(self) -> None:
        """Make the working directory what it was when kept, in place. Raises AstraError."""
        await anyio.to_thread.run_sync(self._process().restore)

    def _process(self) -> WalledServer:
        if self._walled is None:
            raise ServerError(f"{self.server_name} runs elsewhere: its state is not ours to reset")
        return self._walled

    def _result(self, reply: mcp_types.CallToolResult) -> ToolResult:
        parts = [_block_text(block) for block in reply.content]
        text = self._scrub("\n".join(part for part in parts if part))
        value = _payload(reply, text, self._scrub)
        if not text and value is not None:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if reply.is_error:
            return ToolResult(status=CallStatus.ERROR, content=text or "error: no message")
        if is_soft_error(value, text):
            return ToolResult(status=CallStatus.SOFT_ERROR, content=text, value=value)
        return ToolResult(status=CallStatus.OK, content=text, value=value)

    def _scrub(self, text: str) -> str:
        # The episode's directory is a temporary path: it must not reach messages or records.
        return text.replace(f"{self._workdir}{os.sep}", "").replace(str(self._workdir), ".")


def is_soft_error(value: Any, text: str) -> bool:
    """Whether a result that claims success is a failure report.

    Structured results: ``success``/``ok`` false, or an ``error`` that is set. Plain text: the
    whole result starts with an error label (``Error: ...``, ``Database error: ...``).
    """
    if isinstance(value, dict):
        if value.get("success") is False or value.get("ok") is False:
            return True
        return bool(value.get("error")) or bool(value.get("isError"))
    return isinstance(value, str) and _SOFT_ERROR_LINE.match(text.lstrip()) is not None


def _failure(status: CallStatus, reason: str) -> ToolResult:
    return ToolResult(status=status, content=f"error: {reason}")


def _block_text(block: Any) -> str:
    if isinstance(block, mcp_types.TextContent):
        return block.text
    text = getattr(getattr(block, "resource", None), "text", None)
    if isinstance(text, str):
        return text
    return f"[{getattr(block, 'type', 'content')}]"


def _payload(reply: mcp_types.CallToolResult, text: str, scrub: Any) -> Any:
    """The typed result: structured content (unwrapped from a lone ``result``), else the text.

    Content that no record can hold gives way to the text, and text of such JSON stays text.
    Raises ValueError or RecursionError where there is only such content.
    """
    value = reply.structured_content
    if value is not None:
        if isinstance(value, dict) and set(value) == {"result"}:
            value = value["result"]
        try:
            return _decoded(scrub(json.dumps(value, ensure_ascii=False)))
        except (ValueError, RecursionError):
            if not text:
                raise
    try:
        return _decoded(text)
    except (ValueError, RecursionError):
        return text


def _decoded(text: str) -> Any:
    """The JSON value of a text. Raises ValueError or RecursionError for what is none, for NaN and
    infinities, and for what ``refuse_unstorable`` refuses.
    """
    value = json.loads(text, parse_constant=no_constant, parse_float=finite)
    refuse_unstorable(value)
    return value


def prepare_workdir(launch: Launch, workdir: Path) -> None:
    """Write the launch's setup files and create the databases their SQL scripts describe."""
    (workdir / "home").mkdir(parents=True, exist_ok=True)
    for relative, text in launch.setup.items():
        path = (workdir / relative).resolve()
        if not path.is_relative_to(workdir.resolve()):
            raise ServerError(f"setup file {relative!r} lies outside the episode's directory")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if path.name.endswith(f".db{DATABASE_SCRIPT}"):
            connection = sqlite3.connect(path.with_name(path.name.removesuffix(DATABASE_SCRIPT)))
            try:
                connection.executescript(text)
            except sqlite3.Error as error:
                raise ServerError(f"setup script {relative!r} fails: {error}") from error
            finally:
                connection.close()
            path.unlink()


@contextmanager
def _walled(
    launch: Launch, workdir: Path, environments: ServerEnvironments, walls: ServerWalls, port: int
) -> Generator[WalledServer]:
    """What starts the server behind ``walls``; its environment is installed by then."""
    bin_folder = environments.ensure(launch.environment)

    def fill(text: str) -> str:
        text = text.replace("{workdir}", str(workdir))
        return text.replace("{port}", str(port)) if port else text

    named = {key: fill(value) for key, value in launch.env.items()}
    environment = {
        "PATH": f"{bin_folder}{os.pathsep}/usr/bin{os.pathsep}/bin",
        "HOME": str(workdir / "home"),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        # tools/list of some servers prints sets; without this it differs from start to start.
        "PYTHONHASHSEED": "0",
        **filled(named, f"`env` of server {_called(launch)}"),
    }
    command = (str(bin_folder / launch.command), *map(fill, launch.args))
    reads = environments.reads(launch.environment)
    with walls.around(command, environment, workdir, reads, launch.network) as walled:
        yield walled


@asynccontextmanager
async def open_server(
    launch: Launch,
    workdir: Path,
    timeout_s: float,
    environments: ServerEnvironments,
    walls: ServerWalls,
) -> AsyncGenerator[McpSession]:
    """Start a server in ``workdir`` (absolute once resolved, private to the caller).

    Raises ServerError if its environment cannot be built or it does not answer ``initialize``
    within ``timeout_s``, and StageStop where ``walls`` cannot be built. The process is gone when
    the context is left, whatever happened.
    """
    workdir = workdir.resolve()
    started = False
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            async with (
                _streams(launch, workdir, timeout_s, environments, walls, log) as opened,
                ClientSession(*opened[:2]) as session,
            ):
                with anyio.fail_after(timeout_s):
                    info = await session.initialize()
                started = True
                yield McpSession(session, info, workdir, timeout_s, opened[2])
        except Exception as error:
            # Task groups wrap what was raised inside them; callers see the error itself.
            cause = _innermost(error)
            if started or isinstance(cause, ServerError | StageStop):
                if cause is error:
                    raise
                raise cause from None
            raise ServerError(
                f"server {_called(launch)} does not start "
                f"within {timeout_s:g} s: {type(cause).__name__}: {cause}; {_last_line(log)}"
            ) from error


def _called(launch: Launch) -> str:
    if launch.command:
        return f"{launch.command} of environment {launch.environment!r}"
    return f"at {launch.url}" if isinstance(launch, HttpLaunch) else "without a command"


@asynccontextmanager
async def _streams(
    launch: Launch,
    workdir: Path,
    timeout_s: float,
    environments: ServerEnvironments,
    walls: ServerWalls,
    log: IO[str],
) -> AsyncGenerator[tuple[Any, Any, WalledServer | None]]:
    """Message streams to the server, by the transport that the launch names; its walls, if ours.

    What its process writes beside the protocol goes to ``log``, where it cannot reach it.
    """
    if isinstance(launch, HttpLaunch) and not launch.command:
        async with http_streams(launch.url, launch.headers) as (reader, writer):
            yield reader, writer, None
        return
    await anyio.to_thread.run_sync(environments.ensure, launch.environment)
    prepare_workdir(launch, workdir)
    if isinstance(launch, HttpLaunch):
        with (
            reserved_port() as port,
            _walled(launch, workdir, environments, walls, port) as walled,
        ):
            url = launch.url.replace("{port}", str(port))
            async with (
                running(_parameters(walled, workdir), port, log, timeout_s),
                http_streams(url, launch.headers) as (reader, writer),
            ):
                yield reader, writer, walled
        return
    with _walled(launch, workdir, environments, walls, 0) as walled:
        parameters = _parameters(walled, workdir)
        async with stdio_client(parameters, errlog=cast("TextIO", log)) as (reader, writer):
            yield reader, writer, walled


def _parameters(walled: WalledServer, workdir: Path) -> StdioServerParameters:
    command, *arguments = walled.command
    return StdioServerParameters(
        command=command, args=arguments, cwd=workdir, env=dict(walled.environment)
    )


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _last_line(log: IO[str]) -> str:
    log.seek(0)
    written = [line.strip() for line in log.read().split("\n") if line.strip()]
    return f"it last wrote: {written[-1][:300]}" if written else "it wrote no message"
