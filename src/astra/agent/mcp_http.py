"""Streamable HTTP to MCP servers: remote ones, and processes started for one episode."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import subprocess
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import IO, Any

import anyio
import anyio.abc
from mcp import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from astra.errors import AstraError

POLL_S = 0.05
GRACE_S = 3.0
"""How long a server process may take to end, in seconds, before it is killed."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class HttpServerError(AstraError):
    """A server over HTTP cannot be reached as configured; the message says what is missing."""


class MissingVariable(AstraError):
    """An entry names a variable of the environment that is not set."""


def free_port() -> int:
    """A port of this machine that nothing listens on at present."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def reserved_port() -> Generator[int]:
    """A free port that nobody else is given before the context is left.

    Without it two runs side by side could be given the same one before the first server listens,
    and the second would talk to the first one's.
    """
    while True:
        port = free_port()
        with socket.socket(socket.AF_UNIX) as mark:
            try:
                mark.bind(f"\0astra-port-{port}")  # a name in the kernel, gone with this process
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            yield port
            return


def filled(values: Mapping[str, str], what: str) -> dict[str, str]:
    """``values`` with ``${NAME}`` read from the environment. Raises MissingVariable.

    ``what`` calls one of them in the message: "a header".
    """

    def value(match: re.Match[str]) -> str:
        secret = os.environ.get(match.group(1))
        if not secret:
            raise MissingVariable(
                f"{what} needs the environment variable {match.group(1)}, which is not set"
            )
        return secret

    return {name: _VARIABLE.sub(value, text) for name, text in values.items()}


@asynccontextmanager
async def http_streams(url: str, headers: Mapping[str, str]) -> AsyncGenerator[tuple[Any, Any]]:
    """Message streams of a session with the server at ``url``."""
    async with (
        create_mcp_http_client(headers=filled(headers, "a header")) as client,
        streamable_http_client(url, http_client=client) as (reader, writer),
    ):
        yield reader, writer


@asynccontextmanager
async def running(
    parameters: StdioServerParameters, port: int, log: IO[str], timeout_s: float
) -> AsyncGenerator[None]:
    """The process described by ``parameters`` from when it accepts connections on ``port``.

    What it writes goes to ``log``.

    Raises HttpServerError if it ends or stays silent for ``timeout_s``. It and all it started
    are gone when the context is left.
    """
    process = await anyio.open_process(
        [parameters.command, *parameters.args],
        cwd=parameters.cwd,
        env=parameters.env,
        stdin=subprocess.PIPE,  # open as long as we are: a guarded server ends when it closes
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        await _listening(process, port, timeout_s)
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)


async def _listening(process: anyio.abc.Process, port: int, timeout_s: float) -> None:
    with anyio.move_on_after(timeout_s):
        while process.returncode is None:
            try:
                connection = await anyio.connect_tcp("127.0.0.1", port)
            except OSError:
                await anyio.sleep(POLL_S)
                continue
            await connection.aclose()
            return
        raise HttpServerError(f"the process ended with status {process.returncode}")
    raise HttpServerError(f"the process does not listen on port {port}")


async def _end(process: anyio.abc.Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is None:
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                break
            with anyio.move_on_after(GRACE_S):
                await process.wait()
    await process.aclose()
