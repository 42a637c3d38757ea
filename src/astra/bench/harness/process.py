"""The process of a driver, caged or plain: started, told its request, heard line by line."""

from __future__ import annotations

import logging
import os
import queue
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, cast

from pydantic import ValidationError

import astra
from astra.bench.harness.protocol import (
    REPLY,
    DriverProcess,
    DriverRequest,
    End,
    Listing,
    ModelEndpoint,
    Played,
    SuiteError,
)
from astra.bench.harness.relay import Relay
from astra.sandbox.cage import STOP_TIMEOUT_S, Cage
from astra.sandbox.protocol import SandboxUnavailable

log = logging.getLogger(__name__)

START_TIMEOUT_S = 300.0
MAX_LINE = 64 << 20
_POLL_S = 0.5
_LAST_LINES = 12


def converse(
    driver: DriverProcess,
    request: DriverRequest,
    endpoints: Mapping[str, ModelEndpoint],
    silence_s: float = START_TIMEOUT_S,
) -> Iterator[Listing | Played]:
    """Start the driver, relay its completions to ``endpoints`` and yield its replies as they come.

    Raises SuiteError when it ends early, says something else than replies, is silent for
    ``silence_s``, or an endpoint stops answering.
    """
    keys = {one.api_key_env for one in endpoints.values()}
    with ExitStack() as stack:
        running = stack.enter_context(_caged(driver) if driver.caged else _plain(driver, keys))
        relay = Relay(running.listener, endpoints)
        stack.callback(relay.close)
        told = {
            role: {"base_url": f"http://127.0.0.1:{running.port}/{role}/v1", "model": one.model}
            for role, one in endpoints.items()
        }
        running.send(request.model_copy(update={"endpoints": told}))
        yield from _replies(running, relay, silence_s)


def _replies(running: _Running, relay: Relay, silence_s: float) -> Iterator[Listing | Played]:
    heard = time.monotonic()
    while True:
        try:
            line = running.lines.get(timeout=_POLL_S)
        except queue.Empty:
            if relay.lost:
                raise SuiteError(relay.lost) from None
            if time.monotonic() - heard > silence_s:
                raise SuiteError(
                    f"its driver said nothing for {silence_s:.0f} s.{running.last_words()}"
                ) from None
            continue
        heard = time.monotonic()
        if relay.lost:
            raise SuiteError(relay.lost)
        if line is None:
            raise SuiteError(
                f"its driver ended before it was done (exit code {running.code()})."
                f"{running.last_words()}"
            )
        try:
            reply = REPLY.validate_json(line)
        except ValidationError as error:
            raise SuiteError(f"its driver sent no reply but {line[:200]!r}: {error}") from None
        if isinstance(reply, End):
            return
        yield reply


class _Running:
    """A started driver: its standard streams, and the listener that it can reach."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        listener: socket.socket,
        code: Callable[[], int | None],
    ) -> None:
        self.process, self.listener, self.code = process, listener, code
        self.port: int = listener.getsockname()[1]
        self.lines: queue.Queue[bytes | None] = queue.Queue(maxsize=1024)
        self._errors: deque[str] = deque(maxlen=_LAST_LINES)
        self._closed = False
        for target in (self._read_lines, self._read_errors):
            threading.Thread(target=target, daemon=True).start()

    def send(self, request: DriverRequest) -> None:
        stdin = cast("IO[bytes]", self.process.stdin)
        try:
            stdin.write(request.model_dump_json().encode())
            stdin.close()
        except BrokenPipeError:
            raise SuiteError(f"its driver did not start.{self.last_words()}") from None

    def _read_lines(self) -> None:
        stdout = cast("IO[bytes]", self.process.stdout)
        while not self._closed and (line := stdout.readline(MAX_LINE)):
            if line.strip():
                self._put(line)
        self._put(None)

    def _put(self, line: bytes | None) -> None:
        while not self._closed:
            try:
                self.lines.put(line, timeout=1.0)
                return
            except queue.Full:
                continue

    def _read_errors(self) -> None:
        for line in cast("IO[bytes]", self.process.stderr):
            text = line.decode(errors="replace").rstrip()
            log.debug("driver: %s", text)
            self._errors.append(text[:500])

    def last_words(self) -> str:
        time.sleep(0.2)  # its last lines may still be on their way
        return " Its last lines:\n" + "\n".join(self._errors) if self._errors else ""

    def close(self) -> None:
        self._closed = True


@contextmanager
def _caged(driver: DriverProcess) -> Generator[_Running]:
    try:
        cage = Cage(driver.reads)
    except SandboxUnavailable as error:
        raise SuiteError(str(error)) from error
    try:
        cage.start(driver.command, dict(driver.environment))
        running = _Running(cage.process, cage.listener, cage.exit_code)
        try:
            yield running
        finally:
            running.close()
    finally:
        cage.close()


def _exit_code(process: subprocess.Popen[bytes]) -> int | None:
    """A process closes its output a moment before it ends; None if it goes on nevertheless."""
    try:
        return process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return None


@contextmanager
def _plain(driver: DriverProcess, keys: Collection[str]) -> Generator[_Running]:
    inherited = {name: value for name, value in os.environ.items() if name not in keys}
    source = str(Path(astra.__file__).parents[1])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = subprocess.Popen(
            driver.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**inherited, "PYTHONPATH": source, **driver.environment},
        )
        running = _Running(process, listener, partial(_exit_code, process))
        try:
            yield running
        finally:
            running.close()
            process.kill()
            process.wait()
