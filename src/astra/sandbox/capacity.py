"""How many sessions may live at once, and what happens when their memory runs out.

A session's address space is capped, but many sessions together could still fill the machine.
Where a cgroup v2 with the memory controller is delegated to us, the kernel bounds the sum.
Elsewhere sessions are admitted against a budget each, and a watchdog kills the largest ones
when together they hold more than the total.
"""

import os
import resource
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from pydantic import BaseModel, ConfigDict, Field

from astra.sandbox.protocol import SandboxUnavailable

_MB = 1 << 20
_PAGE = os.sysconf("SC_PAGE_SIZE")
_WATCH_S = 0.1
_FDS_PER_SESSION = 4
_FDS_KEPT = 256
_FDS_WANTED = 65_536
_SHARE_OF_MEMORY = 0.5
_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")


class PoolConfig(BaseModel):
    """How a sandbox is run on one machine; nothing here changes what a call returns."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    warm: int = Field(default=0, ge=0)
    """Isolated sessions kept ready, forked while the host does something else."""
    max_sessions: int | None = Field(default=None, ge=1)
    """Sessions alive at once; None: what memory and descriptors allow."""
    memory_mb: int | None = Field(default=None, ge=64)
    """What all sessions together may hold; None: half of the memory available at start."""
    session_budget_mb: int = Field(default=16, ge=1)
    """What one session is expected to hold, for admission; an idle one holds 1.5 MB."""
    parallel: int | None = Field(default=None, ge=1)
    """Calls that run at once; None: one per core, so that timeouts measure calls, not queues."""
    wait_s: float = Field(default=60.0, ge=0)
    """How long opening waits for room before it is refused."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What this machine bears: sessions alive at once (and why), bytes of memory in all."""

    sessions: int
    reason: str
    memory_bytes: int


def measure(config: PoolConfig) -> Capacity:
    """Capacity under the limits of memory, descriptors and the configuration.

    Raises this process's soft limit of open files to its hard limit: a session needs four.
    """
    memory = (config.memory_mb or _available_mb()) * _MB
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FDS_WANTED if hard == resource.RLIM_INFINITY else min(hard, _FDS_WANTED)
    if 0 <= soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    room = {
        f"{memory // _MB} MB for sessions of {config.session_budget_mb} MB": memory
        // (config.session_budget_mb * _MB),
        f"a limit of {soft} open files": (soft - _FDS_KEPT) // _FDS_PER_SESSION,
    }
    if config.max_sessions is not None:
        room[f"max_sessions={config.max_sessions}"] = config.max_sessions
    reason = min(room, key=lambda key: room[key])
    return Capacity(max(1, room[reason]), reason, memory)


def _available_mb() -> int:
    available = os.sysconf("SC_PHYS_PAGES") * _PAGE
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # absent, or the word "max"
            available = min(available, int((_CGROUPS / name).read_text(encoding="ascii")))
    return max(64, int(available * _SHARE_OF_MEMORY) // _MB)


class Slots:
    """Admission: a counter of live sessions that opening waits on and ending releases."""

    def __init__(self, capacity: Capacity, wait_s: float) -> None:
        self._capacity, self._wait_s = capacity, wait_s
        # reentrant: a session may be released by the collector while this very lock is held
        self._changed = threading.Condition(threading.RLock())
        self.used = 0

    def acquire(self, count: int) -> None:
        """Wait for room; SandboxUnavailable where there can be none or none comes in time."""
        limit = self._capacity.sessions
        if count > limit:
            raise SandboxUnavailable(self._refusal(count))
        deadline = monotonic() + self._wait_s
        with self._changed:
            while self.used + count > limit:
                left = deadline - monotonic()
                if left <= 0:
                    raise SandboxUnavailable(self._refusal(count))
                self._changed.wait(min(left, 0.5))
            self.used += count

    def try_acquire(self) -> bool:
        with self._changed:
            if self.used >= self._capacity.sessions:
                return False
            self.used += 1
            return True

    def release(self) -> None:
        with self._changed:
            self.used -= 1
            self._changed.notify_all()

    def _refusal(self, count: int) -> str:
        return (
            f"no room for {count} more sessions: {self.used} are open and "
            f"{self._capacity.sessions} fit ({self._capacity.reason}). Close sessions, raise "
            "memory_mb, max_sessions or the limit of open files (ulimit -n), or open fewer at once"
        )


class Grant:
    """One acquired slot on its way to a session, so that no path can lose or free it twice."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._held = True

    def take(self) -> Callable[[], None]:
        """Hand the slot to a session, or take a new one where the last session has ended.

        The returned function releases it.
        """
        if not self._held:
            self._slots.acquire(1)
        self._held = False
        return self._slots.release

    def unused(self) -> None:
        """Release the slot unless a session has taken it."""
        if self._held:
            self._held = False
            self._slots.release()


class MemoryCgroup:
    """A cgroup v2 of our own below one that is delegated to us, with a bound on memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def create(cls, memory_bytes: int, name: str) -> "MemoryCgroup | None":
        """None where no writable cgroup hands the memory controller down."""
        for parent in _own_and_above():
            with suppress(OSError):
                if "memory" not in (parent / "cgroup.subtree_control").read_text().split():
                    continue
                folder = parent / name
                folder.mkdir()
                try:
                    (folder / "memory.max").write_text(str(memory_bytes))
                    with suppress(OSError):
                        (folder / "memory.swap.max").write_text("0")
                except OSError:
                    folder.rmdir()
                    raise
                return cls(folder)
        return None

    def add(self, pid: int) -> None:
        """Move a zygote in; what it forks follows. Raises OSError."""
        (self._folder / "cgroup.procs").write_text(str(pid))

    def close(self) -> None:
        with suppress(
            OSError
        ):  # a dying process may still be counted; an empty group costs nothing
            self._folder.rmdir()


def _own_and_above() -> Sequence[Path]:
    with suppress(OSError):
        for line in _OWN_CGROUP.read_text(encoding="utf-8").splitlines():
            if line.startswith("0::"):
                own = _CGROUPS / line[3:].strip().lstrip("/")
                below = [own, *own.parents]
                return below[: below.index(_CGROUPS) + 1]
    return ()


class MemoryKills:
    """Tells kills for memory from kills by somebody else: the kernel counts its own.

    Every kill noted or counted can be claimed once, by a session that was found killed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted = _oom_kills()
        self._unclaimed = 0

    def note(self) -> None:
        """The watchdog is about to kill a session."""
        with self._lock:
            self._unclaimed += 1

    def claim(self) -> bool:
        with self._lock:
            counted = _oom_kills()
            self._unclaimed += counted - self._counted
            self._counted = counted
            if self._unclaimed == 0:
                return False
            self._unclaimed -= 1
            return True


def _oom_kills() -> int:
    """Processes this kernel has killed for memory since it started; 0 where it does not say."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


class MemoryWatch(threading.Thread):
    """Kills the largest sessions while all together hold more than the total.

    A killed session's call ends with status memory. Looks only while the open sessions could
    exceed the total, so it costs nothing in small runs.
    """

    def __init__(
        self,
        roots: Callable[[], Sequence[int]],
        total_bytes: int,
        at_risk: Callable[[], bool],
        note: Callable[[], None],
    ) -> None:
        super().__init__(name="sandbox-memory", daemon=True)
        self._roots, self._total, self._at_risk = roots, total_bytes, at_risk
        self._note = note
        self._stop_event = threading.Event()

    def stop(self) -> None:
        self._stop_event.set()

    def run(self) -> None:
        while not self._stop_event.wait(_WATCH_S):
            if self._at_risk():
                self.check()

    def check(self) -> None:
        held = [pair for root in self._roots() for pair in session_memory(root)]
        excess = sum(size for size, _ in held) - self._total
        for size, pid in sorted(held, reverse=True):
            if excess <= 0:
                return
            if _kill_if_large(pid, size // 2, self._note):
                excess -= size


def session_memory(zygote: int) -> list[tuple[int, int]]:
    """(bytes beyond what it shares with the zygote, pid) of every session below a zygote.

    Sessions are the processes below the zygote proper, which in tier A is the first child of
    the process the host started. Empty where the kernel does not list children.
    """
    shared, sessions, level = 0, [], [zygote]
    while level:
        below = [child for pid in level for child in children(pid)]
        if not sessions and shared == 0:
            shared = max((_anonymous(pid) for pid in [zygote, *below[:1]]), default=0)
        sessions += [(max(0, _anonymous(pid) - shared), pid) for pid in below]
        level = below
    return [pair for pair in sessions if pair[0]]


def children(pid: int) -> list[int]:
    with suppress(OSError):
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        return [int(word) for word in text.split()]
    return []


def _anonymous(pid: int) -> int:
    with suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
        return (int(fields[1]) - int(fields[2])) * _PAGE
    return 0


def _kill_if_large(pid: int, least: int, note: Callable[[], None]) -> bool:
    """Kill through a pidfd, after a second look, so that a reused number is not hit."""
    with suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if _anonymous(pid) >= least:
                note()
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                return True
        finally:
            os.close(pidfd)
    return False
