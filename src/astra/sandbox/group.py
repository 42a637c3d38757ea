"""Sessions forked from one template that has loaded their sources already."""

import socket
from collections.abc import Callable, Mapping, Sequence

from astra.sandbox.capacity import Grant
from astra.sandbox.driver import Steps, drive
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.protocol import (
    SandboxLoadError,
    SandboxStatus,
    SandboxUnavailable,
    Session,
)
from astra.sandbox.session import LocalSession, Shared
from astra.sandbox.zygote_process import ZygoteGone, ZygoteProcess, output_bytes, request_session

_GREETING_TIMEOUT_S = 20.0


class _Template:
    """Holds the loaded process until the last session forked from it has ended."""

    def __init__(self, keeper: LocalSession, control: socket.socket, count: int) -> None:
        self._keeper, self._control, self._count = keeper, control, count

    def fork(self, limits: SandboxLimits, shared: Shared, free: Callable[[], None]) -> LocalSession:
        ends = request_session(self._control, b"o", output_bytes(limits))

        def on_end() -> None:
            free()
            self.drop()

        session = LocalSession(ends, limits, shared, on_end)
        session.adopt(self._keeper)
        return session

    def drop(self) -> None:
        self._count -= 1
        if self._count == 0:
            self._control.close()
            self._keeper.close()


def open_group(
    pick: Callable[[], ZygoteProcess],
    compiled: Mapping[str, str],
    limits: SandboxLimits,
    shared: Shared,
    grants: Sequence[Grant],
) -> list[Session]:
    """Load once, fork ``len(grants) - 1`` sessions. Raises SandboxLoadError, SandboxUnavailable."""
    first, *others = grants
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        ends = pick().open_template(theirs.fileno())
    except ZygoteGone as error:
        control.close()
        raise SandboxUnavailable(f"the zygote died: {error}") from error
    finally:
        theirs.close()
    keeper = LocalSession(ends, limits, shared, first.take())
    template = _Template(keeper, control, len(others) + 1)
    try:
        _load(keeper, compiled, shared)
        sessions = [template.fork(limits, shared, grant.take()) for grant in others]
        greetings = [session.greet_steps(_GREETING_TIMEOUT_S) for session in sessions]
        reason = next((text for text in drive(greetings, shared.gate) if text), "")
    except OSError as error:
        reason, sessions = str(error), []
    except SandboxLoadError:
        control.close()
        keeper.close()
        raise
    if reason:
        control.close()
        keeper.close()
        raise SandboxUnavailable(f"a template's session could not be opened: {reason}")
    template.drop()
    return list(sessions)


def _load(keeper: LocalSession, compiled: Mapping[str, str], shared: Shared) -> None:
    def steps() -> "Steps[None]":
        reason = yield from keeper.greet_steps(_GREETING_TIMEOUT_S)
        if reason:
            raise SandboxUnavailable(f"a template could not be isolated: {reason}")
        result = yield from keeper.load_steps(compiled)
        if result.status is SandboxStatus.INFRA:
            raise SandboxUnavailable(f"a template was lost while loading: {result.error}")
        if result.status is not SandboxStatus.OK:
            raise SandboxLoadError(f"{result.status}: {result.error}")

    drive([steps()], shared.gate)
