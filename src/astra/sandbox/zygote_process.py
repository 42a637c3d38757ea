"""The host's handle on one zygote process: start, open sessions, notice its death, end it."""

import base64
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

from astra.sandbox import filters
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.protocol import SandboxUnavailable
from astra.sandbox.session import Ends

TIERS = ("A", "B", "C")
"""Strongest first. A: namespaces, empty root, Landlock where present, seccomp, rlimits.
B: Landlock, seccomp without any path call, rlimits. C: B without Landlock."""

_START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 5.0
_SEND_TIMEOUT_S = 5.0
_ENTRY = Path(__file__).with_name("zygote.py")

# Not -I: with an environment holding only this, -P -s -S isolate as much, and a fixed hash
# seed makes the order of sets the same in every session, so tool results can be compared.
_FLAGS = ("-P", "-s", "-S", "-B", "-X", "utf8")
_ENVIRONMENT = {"PYTHONHASHSEED": "0"}


class ZygoteGone(Exception):
    """The zygote died or does not answer; a new one is needed."""


class ZygoteProcess:
    """A running zygote of one tier. ``open`` may be called from several threads."""

    def __init__(self, tier: str, limits: SandboxLimits) -> None:
        self.tier = tier
        self._lock = threading.Lock()
        self._gone = False
        config = _config(tier, limits)
        self._output_bytes = _output_bytes(limits)
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = here
        try:
            self._process = _launch(there)
        except OSError as error:
            here.close()
            raise SandboxUnavailable(
                f"the interpreter cannot be started for a sandbox: {error}; "
                "use one that this user may execute"
            ) from error
        finally:
            there.close()
        self.facts = self._greet(config)

    def _greet(self, config: bytes) -> Mapping[str, Any]:
        answer: dict[str, Any] = {}
        try:
            self._control.settimeout(_START_TIMEOUT_S)
            self._control.send(config)
            packet = self._control.recv(1 << 16)
            answer = cast("dict[str, Any]", json.loads(packet)) if packet else {}
        except (OSError, ValueError) as error:
            answer = {"ok": False, "reason": f"no answer from the zygote: {error}"}
        if answer.get("ok"):
            cast("Any", self._process.stderr).close()
            self._control.settimeout(_SEND_TIMEOUT_S)
            return answer
        reason = answer.get("reason") or self._last_words()
        self.close()
        raise SandboxUnavailable(str(reason))

    def _last_words(self) -> str:
        self._process.kill()
        text: bytes = cast("Any", self._process.stderr).read()
        return text.decode(errors="replace").strip()[-500:] or "the zygote ended at start"

    @property
    def pid(self) -> int:
        """The process the host started; in tier A the zygote proper is its child."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        return not self._gone and self._process.poll() is None

    def open(self) -> Ends:
        """Ask for one session; it greets once its walls stand."""
        with self._lock:
            if self._gone:
                raise ZygoteGone("the zygote was ended")
            try:
                return _request_session(self._control, self._output_bytes)
            except OSError as error:
                self._gone = True
                raise ZygoteGone(str(error)) from error

    def condemn(self) -> None:
        """Kill a zygote that does not answer; its sessions end as infra failures."""
        self._gone = True
        self._process.kill()

    def close(self) -> None:
        """End the zygote and with it every session; idempotent."""
        with self._lock:
            self._gone = True
            self._control.close()
        if self._process.stderr is not None:
            self._process.stderr.close()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _output_bytes(limits: SandboxLimits) -> int:
    """Size of a session's output region: a length and room, for stdout and for stderr."""
    return 2 * (4 + limits.max_output_bytes)


def _request_session(control: socket.socket, output_bytes: int) -> Ends:
    """Make the two ends of a session and hand one to the zygote. Raises OSError."""
    with ExitStack() as undo, ExitStack() as theirs:

        def pipe() -> tuple[int, int]:
            pair = os.pipe2(os.O_CLOEXEC)
            for descriptor in pair:
                undo.callback(os.close, descriptor)
            return pair

        requests_out, requests = pipe()
        replies, replies_in = pipe()
        os.set_blocking(requests, False)
        os.set_blocking(replies, False)
        output = os.memfd_create("output", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        undo.callback(os.close, output)
        os.ftruncate(output, output_bytes)
        fcntl.fcntl(output, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        status, status_theirs = socket.socketpair()
        undo.callback(status.close)
        theirs.callback(status_theirs.close)
        passed = [requests_out, replies_in, status_theirs.fileno(), output]
        socket.send_fds(control, [b"o"], passed)
        undo.pop_all()
        os.close(requests_out)
        os.close(replies_in)
        return Ends(requests, replies, status, output)


def _config(tier: str, limits: SandboxLimits) -> bytes:
    return json.dumps(
        {
            "tier": tier,
            "imports": list(limits.allowed_imports),
            "memory_mb": limits.memory_mb,
            "cpu_s": limits.cpu_s,
            "tmp_mb": limits.tmp_mb,
            "max_output_bytes": limits.max_output_bytes,
            "filters": {
                kind: base64.b64encode(filters.program(kind)).decode() for kind in filters.KINDS
            },
        }
    ).encode()


def _launch(control: socket.socket) -> "subprocess.Popen[bytes]":
    interpreter = os.path.realpath(sys.executable)
    return subprocess.Popen(
        [interpreter, *_FLAGS, str(_ENTRY), str(control.fileno())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd="/",
        env=_ENVIRONMENT,
        pass_fds=(control.fileno(),),
        start_new_session=True,  # a terminal's Ctrl-C is the host's affair
    )
