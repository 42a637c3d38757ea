"""A sandbox on this machine: a few zygotes, probed at start, replaced when they die."""

import ast
import base64
import itertools
import marshal
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Any, Self

from astra.sandbox.attacks import run_attacks
from astra.sandbox.imports import forbidden_in_tree
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.pool import TIERS, ZygoteGone, ZygoteProcess
from astra.sandbox.protocol import (
    SandboxLoadError,
    SandboxResult,
    SandboxStatus,
    SandboxUnavailable,
    Session,
)
from astra.sandbox.session import NO_GREETING, LocalSession, Steps, drive

_MAX_SOURCE = 256 * 1024
_HELLO_TIMEOUT_S = 20.0
_OPEN_ATTEMPTS = 3

_REMEDY = (
    "Tier A needs user, mount and pid namespaces (in Docker: --security-opt seccomp=unconfined, "
    "or run on the host; on Ubuntu 24.04: kernel.apparmor_restrict_unprivileged_userns=0). "
    "Tier B needs Linux 5.13 with Landlock (boot option lsm=landlock,...) and libseccomp2. "
    "A lower min_tier accepts less isolation"
)


class LocalSandbox:
    """Isolated sessions on this machine.

    The strongest tier that really works is used: each is started and attacked from inside
    before it counts. Nothing at least ``min_tier`` strong raises SandboxUnavailable.
    ``force_tier`` accepts that tier only. Threads may share a sandbox, not a session.
    """

    def __init__(
        self,
        limits: SandboxLimits | None = None,
        min_tier: str = "B",
        zygotes: int = 1,
        force_tier: str | None = None,
    ) -> None:
        if min_tier not in TIERS or force_tier not in (None, *TIERS) or zygotes < 1:
            raise ValueError(f"tiers are {TIERS} and zygotes at least 1")
        self.limits = limits or SandboxLimits()
        self._lock = threading.Lock()
        self._closed = False
        wanted = (force_tier,) if force_tier else TIERS[: TIERS.index(min_tier) + 1]
        first = self._first_zygote(wanted)
        self._tier = first.tier
        self.facts = dict(first.facts)
        """What the zygote found: the Landlock ABI (0: none) and the uid that sessions have."""
        self._zygotes = [first]
        self._turn = itertools.count()
        try:
            for _ in range(zygotes - 1):
                self._zygotes.append(ZygoteProcess(self._tier, self.limits))
        except BaseException:
            self.close()
            raise

    def _first_zygote(self, wanted: Sequence[str]) -> ZygoteProcess:
        reasons: list[str] = []
        self.findings: dict[str, str] = {}
        """Outcome of every attack of the start-up probe, by name."""
        for tier in wanted:
            try:
                zygote = ZygoteProcess(tier, self.limits)
            except SandboxUnavailable as error:
                reasons.append(f"tier {tier}: {error}")
                continue
            try:
                self.findings = run_attacks(self._probe_session(zygote))
                open_doors = [name for name, found in self.findings.items() if found != "denied"]
            except SandboxUnavailable as error:
                self.findings, open_doors = {}, [str(error)]
            if not open_doors:
                return zygote
            zygote.close()
            reasons.append(f"tier {tier}: attacks succeeded in the probe: {', '.join(open_doors)}")
        raise SandboxUnavailable(
            f"no code sandbox of tier {wanted[-1]} or better here ({'; '.join(reasons)}). {_REMEDY}"
        )

    def _probe_session(self, zygote: ZygoteProcess) -> LocalSession:
        try:
            channel, status = zygote.open()
        except ZygoteGone as error:
            raise SandboxUnavailable(f"the zygote died: {error}") from error
        session = LocalSession(channel, status, self.limits)
        reason = drive([session.greet_steps(_HELLO_TIMEOUT_S)])[0]
        if reason:
            raise SandboxUnavailable(f"a session cannot be isolated: {reason}")
        return session

    @property
    def tier(self) -> str:
        return self._tier

    def session(self, sources: Mapping[str, str]) -> Session:
        """Open one session; raises SandboxLoadError for sources that do not load."""
        opened = self.sessions([sources])[0]
        if isinstance(opened, SandboxLoadError):
            raise opened
        return opened

    def sessions(self, sources: Sequence[Mapping[str, str]]) -> list[Session | SandboxLoadError]:
        """Open many at once, forking and loading overlapped; one outcome per item, in order.

        Raises SandboxUnavailable only where fresh zygotes keep dying.
        """
        outcomes: list[Session | SandboxLoadError] = list(
            drive([self._open_steps(item) for item in sources])
        )
        return outcomes

    def _open_steps(self, sources: Mapping[str, str]) -> "Steps[LocalSession | SandboxLoadError]":
        try:
            allowed = self.limits.allowed_imports
            compiled = {name: compile_source(name, text, allowed) for name, text in sources.items()}
        except SandboxLoadError as error:
            return error
        reason = ""
        for _ in range(_OPEN_ATTEMPTS):
            try:
                zygote = self._pick()
                channel, status = zygote.open()
            except ZygoteGone as error:
                reason = str(error)
                continue
            session = LocalSession(channel, status, self.limits)
            reason = yield from session.greet_steps(_HELLO_TIMEOUT_S)
            if reason:
                if reason == NO_GREETING:
                    zygote.condemn()
                continue
            result = yield from session.load_steps(compiled)
            if result.status is SandboxStatus.OK:
                return session
            session.close()
            reason = result.error
            if result.status is not SandboxStatus.INFRA:
                return SandboxLoadError(f"{result.status}: {result.error}")
        raise SandboxUnavailable(f"no session could be opened: {reason}")

    def _pick(self) -> ZygoteProcess:
        """The next zygote in turn, replaced first if it has died."""
        with self._lock:
            if self._closed:
                raise SandboxUnavailable("the sandbox is closed")
            index = next(self._turn) % len(self._zygotes)
            zygote = self._zygotes[index]
            if not zygote.alive:
                zygote.close()
                zygote = self._zygotes[index] = ZygoteProcess(self._tier, self.limits)
            return zygote

    def call_many(
        self, requests: Sequence[tuple[Session, str, Mapping[str, Any]]]
    ) -> list[SandboxResult]:
        """Run all requests, sessions overlapped, those of one session in order.

        Each call's clock starts when it is sent, and all sessions compete for the same cores:
        give ``call_timeout_s`` room when many compute at once.
        """
        queues: dict[int, list[int]] = {}
        for index, (session, _, _) in enumerate(requests):
            if not isinstance(session, LocalSession):
                raise TypeError(f"not a session of this sandbox: {type(session).__name__}")
            queues.setdefault(id(session), []).append(index)
        results: dict[int, SandboxResult] = {}

        def run(indices: list[int]) -> "Steps[None]":
            for index in indices:
                session, function, arguments = requests[index]
                assert isinstance(session, LocalSession)
                results[index] = yield from session.call_steps(function, arguments)

        drive([run(indices) for indices in queues.values()])
        return [results[index] for index in range(len(requests))]

    def close(self) -> None:
        """End every zygote and session; idempotent."""
        with self._lock:
            self._closed = True
            for zygote in self._zygotes:
                zygote.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@lru_cache(maxsize=2048)
def compile_source(name: str, source: str, allowed: tuple[str, ...]) -> str:
    """Check a source and compile it once: marshalled code, base64. Raises SandboxLoadError.

    The code object goes to an interpreter of the same version; its file name is the tool's
    name, so a traceback shows no path. Cached, since one environment is opened many times.
    """
    if not name.isidentifier():
        raise SandboxLoadError(f"{name!r} is not a function name")
    if len(source) > _MAX_SOURCE:
        raise SandboxLoadError(f"the source of {name} is longer than {_MAX_SOURCE} characters")
    try:
        tree = ast.parse(source, filename=f"<{name}>")
        forbidden = forbidden_in_tree(tree, allowed)
        code = compile(source, f"<{name}>", "exec", dont_inherit=True)
    except SyntaxError as error:
        raise SandboxLoadError(
            f"SyntaxError in {name}: {error.msg} (line {error.lineno})"
        ) from error
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise SandboxLoadError(f"the source of {name} cannot be compiled: {error}") from error
    if forbidden:
        raise SandboxLoadError(f"forbidden import in {name}: {', '.join(forbidden)}")
    return base64.b64encode(marshal.dumps(code)).decode()
