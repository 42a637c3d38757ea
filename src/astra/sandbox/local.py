"""A sandbox on this machine: a few zygotes, probed at start, replaced when they die."""

import itertools
import os
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from astra.sandbox.attacks import run_attacks
from astra.sandbox.capacity import (
    Grant,
    MemoryCgroup,
    MemoryKills,
    MemoryWatch,
    PoolConfig,
    Slots,
    children,
    measure,
)
from astra.sandbox.driver import Gate, Steps, cores, drive
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.protocol import (
    SandboxLoadError,
    SandboxResult,
    SandboxStatus,
    SandboxUnavailable,
    Session,
)
from astra.sandbox.session import NO_GREETING, LocalSession, Shared
from astra.sandbox.sources import compile_sources
from astra.sandbox.zygote_process import TIERS, ZygoteGone, ZygoteProcess

_HELLO_TIMEOUT_S = 20.0
_OPEN_ATTEMPTS = 3

REMEDY = (
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
        pool: PoolConfig | None = None,
    ) -> None:
        if min_tier not in TIERS or force_tier not in (None, *TIERS) or zygotes < 1:
            raise ValueError(f"tiers are {TIERS} and zygotes at least 1")
        self.limits = limits or SandboxLimits()
        self.pool = pool or PoolConfig()
        self._lock = threading.Lock()
        self._closed = False
        self._gate = Gate(self.pool.parallel or cores())
        self._kills = MemoryKills()
        self._shared = Shared(self._gate, self._kills.claim)
        self._capacity = measure(self.pool)
        self._slots = Slots(self._capacity, self.pool.wait_s)
        self._idle: deque[LocalSession] = deque()
        self._zygotes: list[ZygoteProcess] = []
        self._turn = itertools.count()
        name = f"astra-sandbox-{os.getpid()}-{id(self):x}"
        self._cgroup = MemoryCgroup.create(self._capacity.memory_bytes, name)
        self._watch: MemoryWatch | None = None
        try:
            wanted = (force_tier,) if force_tier else TIERS[: TIERS.index(min_tier) + 1]
            self._zygotes.append(self._first_zygote(wanted))
            self._tier = self._zygotes[0].tier
            self._adopt(self._zygotes[0])
            for _ in range(zygotes - 1):
                self._zygotes.append(self._start_zygote())
        except BaseException:
            self.close()
            raise
        self.facts: dict[str, Any] = {**self._zygotes[0].facts, **self._memory_facts()}
        """What was found: Landlock ABI (0: none), uid of sessions, room, how memory is bound."""
        self._refill()

    def _memory_facts(self) -> dict[str, Any]:
        if self._cgroup is None:
            worst = (self.limits.memory_mb << 20) + (1 << 21)
            self._watch = MemoryWatch(
                lambda: self.zygote_pids,
                self._capacity.memory_bytes,
                lambda: self._slots.used * worst > self._capacity.memory_bytes,
                self._kills.note,
            )
            self._watch.start()
        listed = Path(f"/proc/self/task/{os.getpid()}/children").exists()
        bound = "cgroup" if self._cgroup else "watchdog" if listed else "admission only (no /proc)"
        return {"memory": bound, "room": self._capacity.sessions}

    def _start_zygote(self) -> ZygoteProcess:
        zygote = ZygoteProcess(self._tier, self.limits)
        self._adopt(zygote)
        return zygote

    def _adopt(self, zygote: ZygoteProcess) -> None:
        """Put a zygote, and so every later session, under the memory bound."""
        if self._cgroup is None:
            return
        try:
            for pid in [zygote.pid, *children(zygote.pid)]:
                self._cgroup.add(pid)
        except OSError:
            self._cgroup.close()
            self._cgroup = None

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
                open_doors = [name for name, said in self.findings.items() if said != "denied"]
            except SandboxUnavailable as error:
                self.findings, open_doors = {}, [str(error)]
            if not open_doors:
                return zygote
            zygote.close()
            reasons.append(f"tier {tier}: attacks succeeded in the probe: {', '.join(open_doors)}")
        raise SandboxUnavailable(
            f"no code sandbox of tier {wanted[-1]} or better here ({'; '.join(reasons)}). {REMEDY}"
        )

    def _probe_session(self, zygote: ZygoteProcess) -> LocalSession:
        try:
            session = LocalSession(zygote.open(), self.limits, self._shared)
        except ZygoteGone as error:
            raise SandboxUnavailable(f"the zygote died: {error}") from error
        reason = drive([session.greet_steps(_HELLO_TIMEOUT_S)])[0]
        if reason:
            raise SandboxUnavailable(f"a session cannot be isolated: {reason}")
        return session

    @property
    def tier(self) -> str:
        return self._tier

    @property
    def zygote_pids(self) -> list[int]:
        """The processes the host started; in tier A the zygotes proper are their children."""
        return [zygote.pid for zygote in self._zygotes]

    def session(self, sources: Mapping[str, str]) -> Session:
        """Open one session; raises SandboxLoadError for sources that do not load."""
        opened = self.sessions([sources])[0]
        if isinstance(opened, SandboxLoadError):
            raise opened
        return opened

    def sessions(self, sources: Sequence[Mapping[str, str]]) -> list[Session | SandboxLoadError]:
        """Open many at once, forking and loading overlapped; one outcome per item, in order.

        Raises SandboxUnavailable where fresh zygotes keep dying, or where there is no room
        for so many and none comes in time.
        """
        warm = self._take_warm(len(sources))
        try:
            self._slots.acquire(len(sources) - len(warm))
        except SandboxUnavailable:
            self._idle.extendleft(warm)
            raise
        grants = [*warm, *(Grant(self._slots) for _ in range(len(sources) - len(warm)))]
        steps = [self._open_steps(item, got) for item, got in zip(sources, grants, strict=True)]
        try:
            outcomes: list[Session | SandboxLoadError] = list(drive(steps, self._gate))
        finally:
            for granted in grants:
                if isinstance(granted, Grant):
                    granted.unused()
        if self.pool.warm:
            self._keep_warm(outcomes)
        return outcomes

    def _keep_warm(self, opened: Sequence[Session | SandboxLoadError]) -> None:
        """Refill when sessions close, not when they start: a fork then would slow their calls."""
        for session in opened:
            if isinstance(session, LocalSession):
                session.on_close = self._refill
        if not self._idle:
            self._refill()

    def _take_warm(self, count: int) -> list[LocalSession]:
        taken: list[LocalSession] = []
        with suppress(IndexError):
            while len(taken) < count:
                taken.append(self._idle.popleft())
        return taken

    def _refill(self) -> None:
        """Ask for as many idle sessions as are missing; they isolate themselves meanwhile."""
        while not self._closed and len(self._idle) < self.pool.warm and self._slots.try_acquire():
            grant = Grant(self._slots)
            try:
                ends = self._pick().open()
            except (ZygoteGone, SandboxUnavailable):
                grant.unused()
                return
            self._idle.append(LocalSession(ends, self.limits, self._shared, grant.take()))

    def _open_steps(
        self, sources: Mapping[str, str], granted: LocalSession | Grant
    ) -> "Steps[LocalSession | SandboxLoadError]":
        try:
            compiled = compile_sources(sources, self.limits.allowed_imports)
        except SandboxLoadError as error:
            return error
        reason = ""
        for _ in range(_OPEN_ATTEMPTS):
            try:
                zygote = self._pick()
                session = granted
                if not isinstance(session, LocalSession):
                    session = LocalSession(zygote.open(), self.limits, self._shared, session.take())
            except ZygoteGone as error:
                reason = str(error)
                continue
            reason = yield from session.greet_steps(_HELLO_TIMEOUT_S)
            result = None if reason else (yield from session.load_steps(compiled))
            if result is not None and result.status is SandboxStatus.OK:
                return session
            session.close()
            if isinstance(granted, LocalSession):  # a warm one that died: its slot is free again
                self._slots.acquire(1)
                granted = Grant(self._slots)
            if reason == NO_GREETING:
                zygote.condemn()
            if result is not None:
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
                zygote = self._zygotes[index] = self._start_zygote()
            return zygote

    def call_many(
        self, requests: Sequence[tuple[Session, str, Mapping[str, Any]]]
    ) -> list[SandboxResult]:
        """Run all requests, sessions overlapped, those of one session in order.

        As many sessions run at once as there are cores, and a call's clock starts when it is
        sent, so the time limit measures the call and not the queue.
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

        drive([run(indices) for indices in queues.values()], self._gate)
        return [results[index] for index in range(len(requests))]

    def close(self) -> None:
        """End every zygote and session; idempotent."""
        if self._watch is not None:
            self._watch.stop()
        with self._lock:
            self._closed = True
            while self._idle:
                self._idle.pop().close()
            for zygote in self._zygotes:
                zygote.close()
        if self._cgroup is not None:
            self._cgroup.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
