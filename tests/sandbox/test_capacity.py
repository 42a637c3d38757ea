"""Room, turns, the warm pool and the memory bound."""

import threading
import time
from pathlib import Path

import pytest

from astra.sandbox import capacity
from astra.sandbox.capacity import MemoryCgroup, PoolConfig, measure, session_memory
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import SandboxStatus, SandboxUnavailable

ONE = {"f": "def f():\n    return 1"}


def test_room_is_what_memory_descriptors_and_the_configuration_bear() -> None:
    assert measure(PoolConfig(memory_mb=640, session_budget_mb=16)).sessions == 40
    found = measure(PoolConfig(max_sessions=3))
    assert (found.sessions, found.reason) == (3, "max_sessions=3")
    assert measure(PoolConfig()).memory_bytes >= 64 << 20


def test_more_sessions_than_fit_are_refused_or_wait(limits: SandboxLimits) -> None:
    pool = PoolConfig(max_sessions=3, wait_s=0.2)
    with LocalSandbox(limits, pool=pool) as sandbox:
        with pytest.raises(SandboxUnavailable, match=r"no room for 4 .*max_sessions=3.*Close"):
            sandbox.sessions([ONE] * 4)
        first, second, third = sandbox.sessions([ONE] * 3)
        with pytest.raises(SandboxUnavailable, match="3 are open"):
            sandbox.session(ONE)
        assert not isinstance(first, Exception)
        first.close()
        fourth = sandbox.session(ONE)
        assert fourth.call("f", {}).value == 1
        del second, third, fourth  # dropped sessions give their room back too
        assert len(sandbox.sessions([ONE] * 3)) == 3
    patient = pool.model_copy(update={"wait_s": 5.0, "max_sessions": 1})
    with LocalSandbox(limits, pool=patient) as sandbox:
        held = sandbox.session(ONE)
        threading.Timer(0.2, held.close).start()
        assert sandbox.session(ONE).call("f", {}).value == 1


def test_failed_and_killed_sessions_give_their_room_back(limits: SandboxLimits) -> None:
    quick = limits.model_copy(update={"call_timeout_s": 0.2})
    with LocalSandbox(quick, pool=PoolConfig(max_sessions=2, wait_s=0.0)) as sandbox:
        for _ in range(3):
            sandbox.sessions([{"f": "f = 1"}, {"f": "import os"}])
        spin = sandbox.session({"f": "def f():\n    while True: pass"})
        assert spin.call("f", {}).status is SandboxStatus.TIMEOUT
        assert len(sandbox.sessions([ONE] * 2)) == 2


def test_warm_sessions_are_used_replaced_and_survive_their_own_death(
    limits: SandboxLimits,
) -> None:
    with LocalSandbox(limits, pool=PoolConfig(warm=2)) as sandbox:
        for _ in range(4):
            session = sandbox.session(ONE)
            assert session.call("f", {}).value == 1
            session.close()
            assert len(sandbox._idle) == 2
        sandbox._zygotes[0]._process.kill()
        sandbox._zygotes[0]._process.wait()
        assert sandbox.session(ONE).call("f", {}).value == 1
        assert len(sandbox.sessions([ONE] * 5)) == 5


def test_no_more_calls_run_at_once_than_there_are_turns(limits: SandboxLimits) -> None:
    """Eight calls of 0.3 s take 2.4 s in one turn, yet none meets its limit of 1 s."""
    source = {"f": "import time\ndef f():\n    time.sleep(0.3)\n    return 1"}
    with LocalSandbox(limits, pool=PoolConfig(parallel=1)) as sandbox:
        sessions = [one for one in sandbox.sessions([source] * 8) if not isinstance(one, Exception)]
        started = time.monotonic()
        results = sandbox.call_many([(session, "f", {}) for session in sessions])
        assert time.monotonic() - started > 2.3
        assert [result.value for result in results] == [1] * 8
        threads = [threading.Thread(target=one.call, args=("f", {})) for one in sessions[:3]]
        started = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert time.monotonic() - started > 0.8


def test_the_watchdog_kills_the_largest_session(limits: SandboxLimits) -> None:
    source = {"f": "kept = []\ndef f(mb):\n    kept.append(bytearray(mb << 20))\n    return mb"}
    pool = PoolConfig(memory_mb=64)
    with LocalSandbox(limits, pool=pool) as sandbox:
        if sandbox.facts["memory"] != "watchdog":
            pytest.skip(f"memory is bound by {sandbox.facts['memory']} here")
        small, large = (sandbox.session(source) for _ in range(2))
        assert small.call("f", {"mb": 20}).value == 20
        large.call("f", {"mb": 55})
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            result = large.call("f", {"mb": 0})
            if result.status is not SandboxStatus.OK:
                break
            time.sleep(0.05)
        assert result.status is SandboxStatus.MEMORY, result
        assert small.call("f", {"mb": 1}).value == 1
        assert max(size for pid in sandbox.zygote_pids for size, _ in session_memory(pid)) > 15e6


def test_a_delegated_cgroup_is_used_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a folder laid out like cgroup v2; a real memory controller is not needed."""
    own = tmp_path / "user.slice" / "run.scope"
    own.mkdir(parents=True)
    listing = tmp_path / "self"
    listing.write_text("0::/user.slice/run.scope\n")
    monkeypatch.setattr(capacity, "_CGROUPS", tmp_path)
    monkeypatch.setattr(capacity, "_OWN_CGROUP", listing)
    assert MemoryCgroup.create(1 << 30, "box") is None
    (tmp_path / "user.slice" / "cgroup.subtree_control").write_text("cpu memory\n")
    group = MemoryCgroup.create(1 << 30, "box")
    assert group is not None
    folder = tmp_path / "user.slice" / "box"
    assert (folder / "memory.max").read_text() == str(1 << 30)
    group.add(123)
    assert (folder / "cgroup.procs").read_text() == "123"
    group.close()
