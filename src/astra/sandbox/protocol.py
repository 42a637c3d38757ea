"""The interface of a sandbox to its callers: statuses, results, errors, sessions."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from astra.errors import AstraError


class SandboxStatus(StrEnum):
    """How a call ended. All but ``ok``/``exception`` values come from the host's own evidence
    (its clock, the kernel's exit status), never from the word of the code that ran."""

    OK = "ok"
    EXCEPTION = "exception"
    """The function raised, or returned something that is not plain JSON. The session lives on."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    """MemoryError (the session lives on) or an out-of-memory kill (it does not)."""
    EXIT = "exit"
    """The process ended: ``sys.exit``, ``os._exit``, a crash."""
    PROTOCOL = "protocol"
    """The session broke the framing, the sequence or the nonce; it was killed."""
    INFRA = "infra"
    """Not the tool's doing: the zygote died or the session was closed. Safe to retry afresh."""
    LOAD_ERROR = "load_error"


class SandboxResult(NamedTuple):
    """One call; ``value`` is meaningful only when ``status`` is ok.

    ``stdout`` and ``stderr`` hold what was printed also where the session was killed. ``error``
    is the last line of a traceback, e.g. ``KeyError: 'x'``, or the host's reason.
    """

    status: SandboxStatus
    value: Any | None
    error: str
    stdout: str
    elapsed_s: float
    stderr: str = ""


class SandboxError(AstraError):
    """Base of what a sandbox raises; a failing *call* is a SandboxResult, never an exception."""


class SandboxUnavailable(SandboxError):
    """No isolation of the demanded tier on this machine. The message says why and what to do."""


class SandboxLoadError(SandboxError):
    """Sources that cannot be loaded: the tool author's fault, with the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = SandboxStatus.LOAD_ERROR

    @property
    def timed_out(self) -> bool:
        """Whether loading took too long, which a busy machine may be to blame for."""
        return self.reason.startswith(SandboxStatus.TIMEOUT.value)


class Session(Protocol):
    """One isolated process holding loaded sources; module state persists between calls."""

    @property
    def alive(self) -> bool: ...

    def call(self, function: str, arguments: Mapping[str, Any]) -> SandboxResult: ...

    def close(self) -> None: ...


class Sandbox(Protocol):
    """Opens sessions. ``sources`` maps a function name to the Python source defining it."""

    @property
    def tier(self) -> str: ...

    def session(self, sources: Mapping[str, str]) -> Session: ...

    def sessions(
        self, sources: Sequence[Mapping[str, str]]
    ) -> list[Session | SandboxLoadError]: ...

    def call_many(
        self, requests: Sequence[tuple[Session, str, Mapping[str, Any]]]
    ) -> list[SandboxResult]: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
