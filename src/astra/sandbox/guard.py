"""Guards one live server: starts it in a cage, and stands between its streams and the host's.

Run as ``python -P -s -S -B guard.py FOLDER``, where ``FOLDER`` is private to the
host and holds ``config.json``. Standard streams are those of the protocol that the server
speaks. The guard passes them on and ends a server that sends a line longer than ``MAX_LINE``,
floods its standard output, or holds more memory than it may, all its processes together. It
ends when the server does, with its exit code; when it ends itself, everything inside ends.

``FOLDER/control`` is a socket that takes ``keep`` (remember the working directory) and
``restore``. ``FOLDER/refused`` says why no walls could be built. Standard library only.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from astra.sandbox import caged, walled
from astra.sandbox import zygote_kernel as kernel

MAX_LINE = 8 << 20
"""Bytes of one message of the server."""
MAX_LINES, MAX_SAID = 10_000, 64 << 20
"""Messages, and bytes, that a server may send between two that it gets."""
MAX_ERRORS = 1 << 20
"""Bytes of standard error that reach the host."""
LOOK_S = 0.1
"""Pause between two looks at what a server holds, in seconds."""
GRACE_S = 10.0
"""How long a server may go on after its standard input was closed, in seconds."""
LAST_WORDS_S = 2.0
"""How long the host may take to get what an ended server wrote on its standard error."""
_CHUNK = 1 << 16
_PAGE = os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    folder = sys.argv[1]
    with open(f"{folder}/config.json", encoding="utf-8") as file:
        config: dict[str, Any] = json.load(file)
    os.unlink(f"{folder}/config.json")  # it may hold a key
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{folder}/control")
    listener.listen(1)
    try:
        server = _start(config)
        server.held()  # where that cannot be seen, nothing is bounded
    except Exception as error:
        with open(f"{folder}/refused", "w", encoding="utf-8") as file:
            file.write(f"{error}" or type(error).__name__)
        sys.exit(1)
    Guard(server, config["memory_mb"] << 20).run(listener)


class CagedServer:
    """The started cage: its first process, and the host's ends of what leads inside."""

    def __init__(self, builder: int, pid: int, control: socket.socket, pipes: list[int]) -> None:
        self.builder, self.pid, self.control = builder, pid, control
        self.stdin, self.stdout, self.stderr = pipes

    def held(self, exact: bool = False) -> int:
        """Bytes of memory that its processes hold; pages they share count once for each.

        ``exact`` counts shared pages once, which takes the kernel much longer. Raises OSError
        where it does not list children (CONFIG_PROC_CHILDREN).
        """
        held = 0
        waiting = [str(self.pid)]
        while waiting:
            pid = waiting.pop()
            try:
                held += _proportional(pid) if exact else _resident(pid)
                for thread in os.listdir(f"/proc/{pid}/task"):
                    waiting += _read(f"/proc/{pid}/task/{thread}/children").split()
            except (FileNotFoundError, ProcessLookupError):
                if pid == str(self.pid):
                    raise
        return held


def _resident(pid: str) -> int:
    return int(_read(f"/proc/{pid}/statm").split()[1]) * _PAGE


def _proportional(pid: str) -> int:
    try:
        lines = _read(f"/proc/{pid}/smaps_rollup").splitlines()
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    except PermissionError:
        return _resident(pid)


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()


def _start(config: dict[str, Any]) -> CagedServer:
    """The server in its cage.

    Raises OSError and the like, with the reason, where the walls cannot be built.
    """
    control, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stdin, stdout, stderr = os.pipe(), os.pipe(), os.pipe()
    builder = os.fork()
    if not builder:
        _build(config, inner, [stdin[0], stdout[1], stderr[1]])
    inner.close()
    for descriptor in (stdin[0], stdout[1], stderr[1]):
        os.close(descriptor)
    said = json.loads(control.recv(_CHUNK) or b'{"reason": "its first process ended at once"}')
    if "pid" not in said:
        raise OSError(said["reason"])
    walls = json.loads(control.recv(_CHUNK) or b'{"reason": "its first process ended"}')
    if walls:
        raise OSError(walls["reason"])
    return CagedServer(builder, said["pid"], control, [stdin[1], stdout[0], stderr[0]])


def _build(config: dict[str, Any], control: socket.socket, pipes: list[int]) -> NoReturn:
    """Enter the namespaces, in a process of its own: it could start no thread any more.

    It is the parent of pid 1, and ends as that does. Nothing of the guard's is kept but
    ``control`` and ``pipes``.
    """
    code = 1
    try:
        kernel.die_with_parent()
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            if descriptor not in (control.fileno(), *pipes):
                with suppress(OSError):  # the listing's own
                    os.close(descriptor)
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")  # short of memory, the kernel ends a server before anything else
        uid = caged.enter_namespaces(config["network"])
        turn, go = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(go)
            os.read(turn, 1)  # its pid is told before anything else
            walled.live(config, uid, control, pipes)
        control.send(json.dumps({"pid": pid}).encode())
        os.close(go)
        control.close()
        for descriptor in pipes:
            os.close(descriptor)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        code = code if code >= 0 else 128 - code
    except Exception as error:
        with suppress(OSError):
            control.send(json.dumps({"reason": f"{error}"}).encode())
    finally:
        os._exit(code)


class Guard:
    """Threads between the host and one server; the first that finds a fault ends the server."""

    def __init__(self, server: CagedServer, memory: int) -> None:
        self._server = server
        self._memory = memory
        self._lines = self._said = 0

    def run(self, listener: socket.socket) -> NoReturn:
        """Guard until the server has ended; this process ends with its exit code."""
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a write to who is gone raises
        control = threading.Thread(target=self._control, args=(listener,), daemon=True)
        control.start()
        errors, *_ = [self._started(work) for work in (self._errors, self._to_server, self._look)]
        self._ending(self._to_host)
        os.close(1)
        code = os.waitstatus_to_exitcode(os.waitpid(self._server.builder, 0)[1])
        errors.join(LAST_WORDS_S)  # nothing inside lives: what it wrote is all there
        os._exit(code)

    def _started(self, work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=self._ending, args=(work,), daemon=True)
        thread.start()
        return thread

    def _ending(self, work: Callable[[], None]) -> None:
        """What fails to guard ends the server."""
        try:
            work()
        except Exception as error:
            self._end(f"{type(error).__name__}: {error}")

    def _end(self, why: str) -> None:
        try:
            os.write(2, f"\ncage: the server was ended: {why}\n".encode())
        finally:
            os.kill(self._server.pid, signal.SIGKILL)

    def _to_server(self) -> None:
        while chunk := os.read(0, _CHUNK):
            self._lines = self._said = 0
            try:
                _write(self._server.stdin, chunk)
            except BrokenPipeError:
                break  # it does not listen any more, and may still speak
        os.close(self._server.stdin)
        time.sleep(GRACE_S)
        self._end(f"it went on for {GRACE_S:g} s after its standard input was closed")

    def _to_host(self) -> None:
        line = 0
        while chunk := os.read(self._server.stdout, _CHUNK):
            last = chunk.rfind(b"\n")
            line = line + len(chunk) if last < 0 else len(chunk) - last - 1
            self._lines += chunk.count(b"\n")
            self._said += len(chunk)
            if line > MAX_LINE:
                return self._end(f"it sent a message of more than {MAX_LINE} bytes")
            if self._lines > MAX_LINES or self._said > MAX_SAID:
                return self._end(
                    f"it sent more than {MAX_LINES} messages or {MAX_SAID} bytes unasked"
                )
            _write(1, chunk)
        return None

    def _errors(self) -> None:
        left = MAX_ERRORS
        while chunk := os.read(self._server.stderr, _CHUNK):
            _write(2, chunk[:left])
            if left and left <= len(chunk):
                _write(2, b"\ncage: what the server writes from here on is dropped\n")
            left = max(0, left - len(chunk))

    def _look(self) -> None:
        while True:
            try:
                held = self._server.held()
                if held > self._memory:
                    held = self._server.held(exact=True)
            except (FileNotFoundError, ProcessLookupError):
                return  # it has ended
            if held > self._memory:
                return self._end(
                    f"its processes held {held >> 20} MB, more than {self._memory >> 20}"
                )
            time.sleep(LOOK_S)

    def _control(self, listener: socket.socket) -> None:
        while True:
            host, _ = listener.accept()
            with host:
                self._server.control.send(host.recv(_CHUNK))
                host.send(self._server.control.recv(_CHUNK))


def _write(descriptor: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(descriptor, view) :]


if __name__ == "__main__":
    main()
