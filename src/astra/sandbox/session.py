"""The host's end of one session: two pipes to talk over, a status socket, an output region.

The tool's standard output lies in memory shared with the host, so that what a session printed
before it was killed is not lost. All verdicts but values and exceptions come from the host's
clock and the kernel's exit status.
"""

import errno
import os
import select
import signal
import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

from astra.sandbox import wire
from astra.sandbox.driver import Gate, Steps
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.protocol import SandboxResult, SandboxStatus

_STATUS = struct.Struct("!iQQ")
_LENGTH = struct.Struct("!I")
_EXIT_GRACE_S = 0.5
_KILL_GRACE_S = 2.0
NO_GREETING = "the session did not start in time"
_MAX_ERROR = 2_300
_READ_SIZE = 1 << 16
_CPU_SHARE = 0.5  # the limit counts clock ticks and may fire before the exact time is used up
_NONCES = 32  # drawn from the kernel at once


@dataclass(frozen=True, slots=True)
class Shared:
    """What the sessions of one sandbox have in common."""

    gate: Gate
    claim_memory_kill: Callable[[], bool] = lambda: False
    """Whether a kill that nobody has claimed yet was for memory; claims it."""


@dataclass(slots=True)
class Ends:
    """The host's descriptors of one session. The pipe ends do not block."""

    requests: int
    replies: int
    status: socket.socket
    output: int
    """A memory file: stdout, then stderr, each a length and that many bytes of room."""

    def close(self) -> None:
        for descriptor in (self.requests, self.replies, self.output):
            os.close(descriptor)
        self.status.close()


def check_reply(payload: bytes, sequence: int, nonce: str) -> dict[str, Any]:
    """The reply to the request just sent, or WireError; safe on arbitrary bytes.

    Either ``v`` (the value) or the strings ``e`` (error line) and ``t`` (exception type), and
    optionally the strings ``o`` and ``r`` (stdout, stderr).
    """
    reply = wire.decode(payload)
    if type(reply.get("i")) is not int or (reply["i"], reply.get("n")) != (sequence, nonce):
        raise wire.WireError("a reply is out of sequence")
    if len(reply) == 3 and "v" in reply:
        return reply  # the usual one
    shape = {"v"} if "v" in reply else {"e", "t"}
    if not {"i", "n"} | shape <= reply.keys() <= {"i", "n", "o", "r"} | shape:
        raise wire.WireError("a reply has the wrong fields")
    if not all(isinstance(reply[key], str) for key in reply.keys() & {"e", "t", "o", "r"}):
        raise wire.WireError("a reply has a field of the wrong type")
    return reply


class LocalSession:
    """One session. For one thread at a time; after its end every call returns the reason."""

    def __init__(
        self,
        ends: Ends,
        limits: SandboxLimits,
        shared: Shared,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._end: tuple[SandboxStatus, str] | None = None
        self.on_close: Callable[[], None] = lambda: None
        """Runs after ``close`` by the caller: never in the collector, so it may take locks."""
        self._ends, self._limits, self._shared, self._on_end = ends, limits, shared, on_end
        self._gate = shared.gate
        self._functions: frozenset[str] = frozenset()
        self._buffer = wire.FrameBuffer()
        self._sequence = 0
        self._nonces: list[str] = []
        self._unsent = memoryview(b"")
        self._last_output = ("", "")
        self._poll = select.poll()
        self._poll.register(ends.replies, select.POLLIN)

    @property
    def alive(self) -> bool:
        """Whether it may still answer; a death between calls shows at the next call."""
        return self._end is None

    def call(self, function: str, arguments: Mapping[str, Any]) -> SandboxResult:
        """Call a loaded function with keyword arguments; never raises for what the tool does.

        Waits for its turn where as many calls as there are cores already run.
        """
        self._gate.take()
        try:
            return self._call_alone(self.call_steps(function, arguments, alone=True))
        finally:
            self._gate.give()

    def _call_alone(self, steps: "Steps[SandboxResult]") -> SandboxResult:
        try:
            wait = next(steps)
            while True:
                poll = select.poll()
                poll.register(wait[0], wait[1])
                left = max(0.0, wait[2] - monotonic())
                wait = steps.send(bool(poll.poll(left * 1000 + 0.5)))
        except StopIteration as stop:
            return stop.value

    def close(self) -> None:
        """End the process; idempotent. The zygote kills it when these descriptors close."""
        if self._end is None:
            self._finish(SandboxStatus.INFRA, "the session was closed")
            self.on_close()

    def __del__(self) -> None:
        if hasattr(self, "_on_end"):  # __init__ came that far
            self._finish(SandboxStatus.INFRA, "the session was dropped")

    def greet_steps(self, timeout_s: float) -> "Steps[str]":
        """Wait until the walls stand; the reason why not, or an empty string."""
        deadline = monotonic() + timeout_s
        try:
            payload = yield from self._receive(deadline)
            hello = {"reason": NO_GREETING} if payload is None else wire.decode(payload)
        except (wire.WireError, OSError) as error:
            hello = {"reason": str(error)}
        if hello.get("ready") is True:
            return ""
        reason = str(hello.get("reason") or "the session did not say that it is ready")
        self._finish(SandboxStatus.INFRA, reason)
        return reason

    def load_steps(self, sources: Mapping[str, str]) -> "Steps[SandboxResult]":
        """Load host-compiled sources; the result's status tells how it went."""
        self._functions = frozenset(sources)
        return self._exchange({"load": dict(sources)})

    def call_steps(
        self, function: str, arguments: Mapping[str, Any], alone: bool = False
    ) -> "Steps[SandboxResult]":
        """One call. With ``alone`` the first wait is a poll made here, not the driver's."""
        return self._exchange({"f": function, "a": dict(arguments)}, alone)

    def _refusal(self, body: dict[str, Any]) -> SandboxResult | None:
        if self._end is not None:
            status, reason = self._end
            return SandboxResult(status, None, f"the session has ended: {reason}", "", 0.0)
        if "f" in body and body["f"] not in self._functions:
            error = f"NameError: no function {body['f']!r} in this session"[:_MAX_ERROR]
            return SandboxResult(SandboxStatus.EXCEPTION, None, error, "", 0.0)
        return None

    def _exchange(self, body: dict[str, Any], alone: bool = False) -> "Steps[SandboxResult]":
        if (refusal := self._refusal(body)) is not None:
            return refusal
        started = monotonic()
        self._sequence += 1
        nonce = self._nonces.pop() if self._nonces else self._draw_nonces()
        body["i"], body["n"] = self._sequence, nonce
        try:
            frame = wire.encode(body)
        except wire.WireError as error:
            text = f"ValueError: arguments refused: {error}"[:_MAX_ERROR]
            return SandboxResult(SandboxStatus.EXCEPTION, None, text, "", 0.0)
        timeout_s = self._limits.call_timeout_s
        try:
            payload = None
            if self._send_now(frame) or (yield from self._send_rest(started + timeout_s)):
                if alone and self._poll.poll(timeout_s * 1000 + 0.5):
                    payload = self._read()
                if payload is None:
                    payload = yield from self._receive(started + timeout_s)
            if payload is not None:
                reply = check_reply(payload, self._sequence, nonce)
                if self._buffer:
                    raise wire.WireError("there are bytes after the reply")
                return self._result(reply, monotonic() - started)
            yield from self._kill(SandboxStatus.TIMEOUT, f"no answer in {timeout_s:g} s")
        except wire.WireError as error:
            yield from self._kill(SandboxStatus.PROTOCOL, str(error)[:_MAX_ERROR])
        except OSError as error:
            yield from self._post_mortem(error)
        return self._ended(monotonic() - started)

    def _draw_nonces(self) -> str:
        text = os.urandom(8 * _NONCES).hex()
        self._nonces = [text[at : at + 16] for at in range(0, len(text), 16)]
        return self._nonces.pop()

    def _result(self, reply: dict[str, Any], elapsed_s: float) -> SandboxResult:
        cap = self._limits.max_output_bytes
        out, err = reply.get("o", "")[:cap], reply.get("r", "")[:cap]
        if "v" in reply:
            return SandboxResult(SandboxStatus.OK, reply["v"], "", out, elapsed_s, err)
        memory = reply["t"] == "MemoryError"
        status = SandboxStatus.MEMORY if memory else SandboxStatus.EXCEPTION
        return SandboxResult(status, None, reply["e"][:_MAX_ERROR], out, elapsed_s, err)

    def _ended(self, elapsed_s: float) -> SandboxResult:
        status, reason = self._end or (SandboxStatus.INFRA, "the session ended")
        out, err = self._last_output
        return SandboxResult(status, None, reason, out, elapsed_s, err)

    def _send_now(self, frame: bytes) -> bool:
        """Whether the pipe took the whole frame; the rest waits for ``_send_rest``."""
        try:
            sent = os.write(self._ends.requests, frame)
        except BlockingIOError:
            sent = 0
        if sent == len(frame):
            return True
        self._unsent = memoryview(frame)[sent:]
        return False

    def _send_rest(self, deadline: float) -> "Steps[bool]":
        """Whether everything was sent in time; OSError when the peer is gone."""
        while self._unsent:
            if not (yield (self._ends.requests, select.POLLOUT, deadline)):
                return False
            try:
                self._unsent = self._unsent[os.write(self._ends.requests, self._unsent) :]
            except BlockingIOError:
                continue
        return True

    def _read(self) -> bytes | None:
        """Take what the pipe holds: one payload, or None while it is incomplete."""
        try:
            data = os.read(self._ends.replies, _READ_SIZE)
        except BlockingIOError:
            return None
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "the session closed its channel")
        self._buffer.feed(data)
        return self._buffer.pop()

    def _receive(self, deadline: float) -> "Steps[bytes | None]":
        """One payload, or None at the deadline; OSError when the peer is gone."""
        while (payload := self._buffer.pop()) is None:
            if not (yield (self._ends.replies, select.POLLIN, deadline)):
                return None
            if (payload := self._read()) is not None:
                return payload
        return payload

    def _kill(self, status: SandboxStatus, reason: str) -> "Steps[None]":
        """Have the session killed and wait, briefly, until the kernel says that it is gone."""
        self._hang_up()
        yield from self._exit_status(_KILL_GRACE_S)
        self._finish(status, reason)

    def _post_mortem(self, error: OSError) -> "Steps[None]":
        """The channel broke: let the exit status say why, and kill what only closed it."""
        report = yield from self._exit_status(_EXIT_GRACE_S)
        if report is None:
            reason = f"the session closed its channel ({error.strerror})"
            yield from self._kill(SandboxStatus.PROTOCOL, reason)
            return
        status, reason = _classify(report, self._limits.cpu_s)
        if status is SandboxStatus.MEMORY and not self._shared.claim_memory_kill():
            status, reason = SandboxStatus.INFRA, "the process was killed from outside"
        self._finish(status, reason)

    def _exit_status(self, grace_s: float) -> "Steps[bytes | None]":
        """The zygote's report; empty when the zygote is gone, None while the session runs on."""
        ready = yield (self._ends.status.fileno(), select.POLLIN, monotonic() + grace_s)
        if not ready:
            return None
        try:
            return self._ends.status.recv(_STATUS.size)
        except OSError:
            return b""

    def _hang_up(self) -> None:
        with suppress(OSError):  # the zygote is gone, and the session with it
            self._ends.status.shutdown(socket.SHUT_WR)

    def _finish(self, status: SandboxStatus, reason: str) -> None:
        if self._end is not None:
            return
        self._end = (status, reason)
        self._last_output = self._output()
        self._ends.close()
        self._on_end()

    def _output(self) -> tuple[str, str]:
        """What was printed since the last reply; lengths the session wrote are only hints."""
        cap = self._limits.max_output_bytes
        texts: list[str] = []
        for start in (0, _LENGTH.size + cap):
            head = os.pread(self._ends.output, _LENGTH.size, start)
            size = min(cap, _LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else 0
            data = os.pread(self._ends.output, size, start + _LENGTH.size) if size else b""
            texts.append(data.decode("utf-8", "ignore"))
        return texts[0], texts[1]


def _classify(report: bytes, cpu_s: int) -> tuple[SandboxStatus, str]:
    """What the kernel's exit status says about a session that ended by itself."""
    if len(report) != _STATUS.size:
        return SandboxStatus.INFRA, "the zygote died"
    code, cpu_us, _ = _STATUS.unpack(report)
    if not code & 0x7F:
        return SandboxStatus.EXIT, f"the process exited with status {code >> 8}"
    number = code & 0x7F
    if number == signal.SIGXCPU or (
        number == signal.SIGKILL and cpu_us >= _CPU_SHARE * 1e6 * cpu_s
    ):
        return SandboxStatus.TIMEOUT, f"the session used up its {cpu_s} s of CPU time"
    if number == signal.SIGKILL:
        return SandboxStatus.MEMORY, "the kernel killed the process for memory"
    return SandboxStatus.EXIT, f"the process was killed by {signal.Signals(number).name}"
