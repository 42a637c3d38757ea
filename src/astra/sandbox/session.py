"""The host's end of one session, as steps that many sessions can take turns in.

A *step generator* does non-blocking work and yields a ``Wait`` whenever it needs the peer; it is
resumed with True when the descriptor is ready and with False when the deadline passed. One
driver, ``drive``, runs one or many of them, so a single call and a batch share every rule.
"""

import os
import select
import signal
import socket
import struct
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar

from astra.sandbox import wire
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.protocol import SandboxResult, SandboxStatus

_STATUS = struct.Struct("!iQQ")
_EXIT_GRACE_S = 0.5
_KILL_GRACE_S = 2.0
NO_GREETING = "the session did not start in time"
_MAX_ERROR = 2_300
_READ_SIZE = 1 << 16
_NOW = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


Wait = tuple[int, int, float]
"""Until the descriptor (first) is ready for the poll events, or the monotonic deadline passes."""

T = TypeVar("T")
Steps = Generator[Wait, bool, T]


def drive(tasks: Sequence[Steps[T]]) -> list[T]:
    """Run all tasks, overlapped, and return their results in order."""
    results: dict[int, T] = {}
    waits: dict[int, Wait] = {}
    owners: dict[int, int] = {}
    poll = select.poll()

    def resume(index: int, ready: bool | None) -> None:
        try:
            wait = next(tasks[index]) if ready is None else tasks[index].send(ready)
        except StopIteration as stop:
            results[index] = stop.value
            return
        waits[index] = wait
        owners[wait[0]] = index
        poll.register(wait[0], wait[1])

    def settle(index: int, ready: bool) -> None:
        descriptor = waits.pop(index)[0]
        del owners[descriptor]
        poll.unregister(descriptor)
        resume(index, ready)

    for index in range(len(tasks)):
        resume(index, None)
    while waits:
        left = min(wait[2] for wait in waits.values()) - monotonic()
        for descriptor, _ in poll.poll(max(0.0, left) * 1000 + 0.5):
            settle(owners[descriptor], True)
        now = monotonic()
        for index in [key for key, wait in waits.items() if wait[2] <= now]:
            settle(index, False)
    return [results[index] for index in range(len(tasks))]


def _poll_one(wait: Wait) -> bool:
    descriptor, events, deadline = wait
    poll = select.poll()
    poll.register(descriptor, events)
    return bool(poll.poll(max(0.0, deadline - monotonic()) * 1000 + 0.5))


def check_reply(payload: bytes, sequence: int, nonce: str) -> dict[str, Any]:
    """The reply to the request just sent, or WireError; safe on arbitrary bytes.

    Either ``v`` (the value) or the strings ``e`` (error line) and ``t`` (exception type), and
    optionally the strings ``o`` and ``r`` (stdout, stderr).
    """
    reply = wire.decode(payload)
    if type(reply.get("i")) is not int or (reply["i"], reply.get("n")) != (sequence, nonce):
        raise wire.WireError("a reply is out of sequence")
    shape = {"v"} if "v" in reply else {"e", "t"}
    if not {"i", "n"} | shape <= reply.keys() <= {"i", "n", "o", "r"} | shape:
        raise wire.WireError("a reply has the wrong fields")
    if not all(isinstance(reply[key], str) for key in reply.keys() & {"e", "t", "o", "r"}):
        raise wire.WireError("a reply has a field of the wrong type")
    return reply


class LocalSession:
    """One session. For one thread at a time; after its end every call returns the reason."""

    def __init__(
        self, channel: socket.socket, status: socket.socket, limits: SandboxLimits
    ) -> None:
        self._channel, self._status, self._limits = channel, status, limits
        self._functions: frozenset[str] = frozenset()
        self._buffer = wire.FrameBuffer()
        self._sequence = 0
        self._unsent = memoryview(b"")
        self._end: tuple[SandboxStatus, str] | None = None
        whole, part = divmod(limits.call_timeout_s, 1)
        patience = struct.pack("@ll", int(whole), int(part * 1e6) or int(not whole))
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)

    @property
    def alive(self) -> bool:
        """Whether it may still answer; a death between calls shows at the next call."""
        return self._end is None

    def call(self, function: str, arguments: Mapping[str, Any]) -> SandboxResult:
        """Call a loaded function with keyword arguments; never raises for what the tool does."""
        steps = self.call_steps(function, arguments, blocking=True)
        try:
            wait = next(steps)
            while True:
                wait = steps.send(_poll_one(wait))
        except StopIteration as stop:
            return stop.value

    def close(self) -> None:
        """End the process; idempotent. The zygote kills it when these descriptors close."""
        self._finish(SandboxStatus.INFRA, "the session was closed")

    def __del__(self) -> None:
        self.close()

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
        self, function: str, arguments: Mapping[str, Any], blocking: bool = False
    ) -> "Steps[SandboxResult]":
        """One call. With ``blocking`` the kernel's receive timeout stands in for the first wait,
        which saves a system call where only one session is driven."""
        return self._exchange({"f": function, "a": dict(arguments)}, blocking)

    def _refusal(self, body: dict[str, Any]) -> SandboxResult | None:
        if self._end is not None:
            status, reason = self._end
            return SandboxResult(status, None, f"the session has ended: {reason}", "", 0.0)
        if "f" in body and body["f"] not in self._functions:
            error = f"NameError: no function {body['f']!r} in this session"[:_MAX_ERROR]
            return SandboxResult(SandboxStatus.EXCEPTION, None, error, "", 0.0)
        return None

    def _exchange(self, body: dict[str, Any], blocking: bool = False) -> "Steps[SandboxResult]":
        if (refusal := self._refusal(body)) is not None:
            return refusal
        started = monotonic()
        self._sequence += 1
        nonce = os.urandom(8).hex()
        body["i"], body["n"] = self._sequence, nonce
        try:
            frame = wire.encode(body)
        except wire.WireError as error:
            text = f"ValueError: arguments refused: {error}"[:_MAX_ERROR]
            return SandboxResult(SandboxStatus.EXCEPTION, None, text, "", 0.0)
        deadline = started + self._limits.call_timeout_s
        try:
            payload = None
            if self._send_now(frame) or (yield from self._send_rest(deadline)):
                if not blocking or not self._receive_blocking():
                    payload = yield from self._receive(deadline)
                else:
                    payload = self._buffer.pop() or (yield from self._receive(deadline))
            if payload is not None:
                reply = check_reply(payload, self._sequence, nonce)
                if len(self._buffer):
                    raise wire.WireError("there are bytes after the reply")
                return self._result(reply, monotonic() - started)
            yield from self._kill(SandboxStatus.TIMEOUT, f"no answer in {deadline - started:g} s")
        except wire.WireError as error:
            yield from self._kill(SandboxStatus.PROTOCOL, str(error)[:_MAX_ERROR])
        except OSError:
            yield from self._post_mortem()
        return self._ended(monotonic() - started)

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
        return SandboxResult(status, None, reason, "", elapsed_s)

    def _send_now(self, frame: bytes) -> bool:
        """Whether the socket took the whole frame; the rest waits for ``_send_rest``."""
        try:
            sent = self._channel.send(frame, _NOW)
        except BlockingIOError:
            sent = 0
        if sent == len(frame):
            return True
        self._unsent = memoryview(frame)[sent:]
        return False

    def _send_rest(self, deadline: float) -> "Steps[bool]":
        """Whether everything was sent in time; OSError when the peer is gone."""
        while self._unsent:
            if not (yield (self._channel.fileno(), select.POLLOUT, deadline)):
                return False
            try:
                self._unsent = self._unsent[self._channel.send(self._unsent, _NOW) :]
            except BlockingIOError:
                continue
        return True

    def _receive_blocking(self) -> bool:
        """One read that the kernel ends at the call timeout; False when it did."""
        try:
            data = self._channel.recv(_READ_SIZE)
        except BlockingIOError:
            return False
        if not data:
            raise ConnectionResetError("the session closed its channel")
        self._buffer.feed(data)
        return True

    def _receive(self, deadline: float) -> "Steps[bytes | None]":
        """One payload, or None at the deadline; OSError when the peer is gone."""
        while (payload := self._buffer.pop()) is None:
            if not (yield (self._channel.fileno(), select.POLLIN, deadline)):
                return None
            data = self._channel.recv(_READ_SIZE, socket.MSG_DONTWAIT)
            if not data:
                raise ConnectionResetError("the session closed its channel")
            self._buffer.feed(data)
        return payload

    def _kill(self, status: SandboxStatus, reason: str) -> "Steps[None]":
        """Have the session killed and wait, briefly, until the kernel says that it is gone."""
        self._hang_up()
        yield from self._exit_status(_KILL_GRACE_S)
        self._finish(status, reason)

    def _post_mortem(self) -> "Steps[None]":
        """The channel broke: let the exit status say why, and kill what only closed it."""
        found = yield from self._exit_status(_EXIT_GRACE_S)
        if found is None:
            yield from self._kill(SandboxStatus.PROTOCOL, "the session closed its channel")
            return
        self._finish(*_classify(found, self._limits.cpu_s))

    def _exit_status(self, grace_s: float) -> "Steps[bytes | None]":
        """The zygote's report; empty when the zygote is gone, None while the session runs on."""
        ready = yield (self._status.fileno(), select.POLLIN, monotonic() + grace_s)
        if not ready:
            return None
        try:
            return self._status.recv(_STATUS.size)
        except OSError:
            return b""

    def _hang_up(self) -> None:
        with suppress(OSError):  # the zygote is gone, and the session with it
            self._status.shutdown(socket.SHUT_WR)

    def _finish(self, status: SandboxStatus, reason: str) -> None:
        if self._end is None:
            self._end = (status, reason)
        self._channel.close()
        self._status.close()


def _classify(report: bytes, cpu_s: int) -> tuple[SandboxStatus, str]:
    """What the kernel's exit status says about a session that ended by itself."""
    if len(report) != _STATUS.size:
        return SandboxStatus.INFRA, "the zygote died"
    code, cpu_us, _ = _STATUS.unpack(report)
    if not code & 0x7F:
        return SandboxStatus.EXIT, f"the process exited with status {code >> 8}"
    number = code & 0x7F
    if number == signal.SIGXCPU or (number == signal.SIGKILL and cpu_us >= 0.95e6 * cpu_s):
        return SandboxStatus.TIMEOUT, f"the session used up its {cpu_s} s of CPU time"
    if number == signal.SIGKILL:
        return SandboxStatus.MEMORY, "the kernel killed the process for memory"
    return SandboxStatus.EXIT, f"the process was killed by {signal.Signals(number).name}"
