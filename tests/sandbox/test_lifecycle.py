"""Many sessions, dying zygotes, threads: nothing hangs, nothing is left behind."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from crossings import descendants

from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import SandboxLoadError, SandboxStatus, Session

ADD = {"add": "total = 0\ndef add(x):\n    global total\n    total += x\n    return total"}


def alive(pid: int) -> bool:
    """Running, as opposed to gone or waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def settled(expected: int) -> int:
    """Descendants once they are few enough, or after two seconds."""
    deadline = time.monotonic() + 2
    while len(found := descendants(os.getpid())) > expected and time.monotonic() < deadline:
        time.sleep(0.02)
    return len(found)


def footprint() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), len(Path("/proc/self/mounts").read_text().splitlines())


def opened(sandbox: LocalSandbox, count: int) -> list[Session]:
    sessions: list[Session] = []
    for item in sandbox.sessions([ADD] * count):
        assert not isinstance(item, SandboxLoadError), item
        sessions.append(item)
    return sessions


def zygote_fds(before: set[int]) -> Iterator[int]:
    for pid in descendants(os.getpid()) - before:
        try:
            yield len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue


def test_sixty_four_sessions_at_once(sandbox: LocalSandbox) -> None:
    sessions = opened(sandbox, 64)
    requests = [(s, "add", {"x": i + k}) for k in range(3) for i, s in enumerate(sessions)]
    results = sandbox.call_many(requests)
    assert [r.value for r in results[-64:]] == [3 * i + 3 for i in range(64)]  # in order each
    for session in sessions:
        session.close()


def test_call_many_mixes_good_slow_and_dead_sessions(
    limits: SandboxLimits, sandbox: LocalSandbox
) -> None:
    loop = {"f": "def f():\n    while True: pass"}
    bad = {"f": "import os\ndef f(): pass"}
    items = sandbox.sessions([loop, ADD, loop, bad, {"f": "def f():\n    raise SystemExit"}])
    assert isinstance(items[3], SandboxLoadError)
    sessions = [item for item in items if not isinstance(item, SandboxLoadError)]
    names = ["f", "add", "f", "f"]
    started = time.monotonic()
    results = sandbox.call_many(
        [(s, n, {"x": 1} if n == "add" else {}) for s, n in zip(sessions, names, strict=True)] * 2
    )
    assert time.monotonic() - started < 2.5 * limits.call_timeout_s  # overlapped
    expected = ["timeout", "ok", "timeout", "exit"] * 2
    assert [result.status for result in results] == expected
    assert results[5].value == 2


def test_hundreds_of_sessions_in_sequence_leave_nothing_behind(limits: SandboxLimits) -> None:
    start = footprint()
    below = descendants(os.getpid())
    with LocalSandbox(limits) as sandbox:
        opened(sandbox, 1)[0].close()
        assert settled(len(below) + 2) <= len(below) + 2
        fds, files = footprint(), set(os.listdir("/tmp"))
        inside = sorted(zygote_fds(below))
        for index in range(300):
            session = opened(sandbox, 1)[0]
            assert session.call("add", {"x": index}).value == index
            session.close()
        assert settled(len(below) + 2) <= len(below) + 2
        assert footprint() == fds
        assert sorted(zygote_fds(below)) == inside
        assert not [name for name in set(os.listdir("/tmp")) - files if "sandbox" in name]
    assert settled(len(below)) <= len(below)
    assert footprint() == start


def test_an_abandoned_session_is_collected(sandbox: LocalSandbox) -> None:
    before = len(descendants(os.getpid()))
    sessions = opened(sandbox, 4)
    assert len(descendants(os.getpid())) >= before
    sessions.clear()
    assert settled(before) <= before


@pytest.mark.parametrize("tier", ["A", "B"])
def test_a_dead_zygote_is_infra_and_replaced(limits: SandboxLimits, tier: str) -> None:
    below = descendants(os.getpid())
    with LocalSandbox(limits, force_tier=tier) as sandbox:
        survivors = opened(sandbox, 3)
        zygotes = descendants(os.getpid()) - below
        threading.Timer(0.2, lambda: [os.kill(pid, signal.SIGKILL) for pid in zygotes]).start()
        sleeper = sandbox.session({"f": "import time\ndef f():\n    time.sleep(30)"})
        assert sleeper.call("f", {}).status is SandboxStatus.INFRA
        for session in survivors:
            assert session.call("add", {"x": 1}).status is SandboxStatus.INFRA
        fresh = opened(sandbox, 2)
        assert [s.call("add", {"x": 5}).value for s in fresh] == [5, 5]
    assert settled(len(below)) <= len(below)


@pytest.mark.parametrize("tier", ["A", "B"])
def test_a_zygote_that_hangs_is_killed_and_replaced(
    limits: SandboxLimits, tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = descendants(os.getpid())
    with LocalSandbox(limits, force_tier=tier) as sandbox:
        monkeypatch.setattr("astra.sandbox.local._HELLO_TIMEOUT_S", 0.7)
        for pid in descendants(os.getpid()) - below:
            with suppress(ProcessLookupError):  # a probe of the start may end just now
                os.kill(pid, signal.SIGSTOP)
        assert opened(sandbox, 1)[0].call("add", {"x": 5}).value == 5
    assert settled(len(below)) <= len(below)


def test_every_pending_call_ends_when_the_zygote_is_killed(
    limits: SandboxLimits, sandbox: LocalSandbox
) -> None:
    source = {"f": "import time\ndef f(x):\n    time.sleep(0.2)\n    return x"}
    with LocalSandbox(limits, force_tier=sandbox.tier) as victim:
        found = [one for one in victim.sessions([source] * 8) if not isinstance(one, Exception)]
        kill = threading.Timer(0.3, lambda: os.kill(victim.zygote_pids[0], signal.SIGKILL))
        kill.start()
        results = victim.call_many([(one, "f", {"x": at}) for at, one in enumerate(found)])
        statuses = [result.status for result in results]
        assert len(results) == 8
        assert set(statuses) <= {SandboxStatus.OK, SandboxStatus.INFRA}
        assert SandboxStatus.INFRA in statuses
        assert opened(victim, 1)[0].call("add", {"x": 5}).value == 5


def test_a_session_killed_from_outside_in_the_middle_of_a_call(sandbox: LocalSandbox) -> None:
    before = descendants(os.getpid())
    victims = sandbox.sessions([{"f": "import time\ndef f():\n    time.sleep(30)"}] * 2)
    mine = descendants(os.getpid()) - before
    threading.Timer(0.2, lambda: [os.kill(pid, signal.SIGKILL) for pid in mine]).start()
    results = sandbox.call_many(
        [(one, "f", {}) for one in victims if not isinstance(one, Exception)]
    )
    assert [result.status for result in results] == [SandboxStatus.INFRA] * 2
    assert "killed from outside" in results[0].error
    assert opened(sandbox, 1)[0].call("add", {"x": 5}).value == 5


def test_a_killed_zygote_takes_its_sessions_along(
    limits: SandboxLimits, sandbox: LocalSandbox
) -> None:
    """Only the zygote is killed, not the sessions: the kernel must end them."""
    below = descendants(os.getpid())
    with LocalSandbox(limits, force_tier=sandbox.tier) as victim:
        sessions = opened(victim, 3)
        family = descendants(os.getpid()) - below
        os.kill(min(family), signal.SIGKILL)
        deadline = time.monotonic() + 3
        while any(alive(pid) for pid in family):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert sessions[0].call("add", {"x": 1}).status is SandboxStatus.INFRA
    assert settled(len(below)) <= len(below)


def test_threads_use_their_own_sessions(limits: SandboxLimits) -> None:
    failures: list[object] = []
    with LocalSandbox(limits, zygotes=2) as sandbox:

        def work() -> None:
            for _ in range(10):
                session = opened(sandbox, 1)[0]
                values = [session.call("add", {"x": 1}).value for _ in range(20)]
                session.close()
                if values != list(range(1, 21)):
                    failures.append(values)

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_a_closed_sandbox_ends_its_sessions(limits: SandboxLimits) -> None:
    with LocalSandbox(limits) as sandbox:
        session = opened(sandbox, 1)[0]
    assert session.call("add", {"x": 1}).status is SandboxStatus.INFRA
    sandbox.close()
