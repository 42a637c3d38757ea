"""The Ray pool: same protocol, batches, dead actors. Needs `pip install '.[ray]'`."""

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from astra.sandbox import ray_sandbox
from astra.sandbox.build import build_sandbox
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.protocol import SandboxLoadError, SandboxStatus, SandboxUnavailable
from astra.sandbox.ray_actor import Unit
from astra.settings import RuntimeConfig

try:
    import ray
except ImportError:
    ray: Any = None

needs_ray = pytest.mark.skipif(
    ray is None, reason="ray is not installed: pip install '.[ray]' to test the Ray pool"
)
ADD = {"add": "total = 0\ndef add(x):\n    global total\n    total += x\n    return total"}
RUNTIME = RuntimeConfig(sandbox="ray", sandbox_workers=1)


@pytest.mark.skipif(ray is not None, reason="ray is installed")
def test_without_ray_the_message_says_how_to_get_it(limits: SandboxLimits) -> None:
    with pytest.raises(SandboxUnavailable, match=r"pip install '\.\[ray\]'"):
        build_sandbox(limits, RUNTIME)


def test_local_is_what_the_default_builds(limits: SandboxLimits) -> None:
    with build_sandbox(limits, RuntimeConfig(sandbox_warm=1, sandbox_workers=1)) as sandbox:
        session = sandbox.session(ADD)
        assert session.call("add", {"x": 2}).value == 2


class FakeRay:
    """A cluster of one actor that can be down; what the queue before it does needs no more."""

    class RayError(Exception):
        pass

    class RayTaskError(RayError):
        pass

    def __init__(self, down_for: int = 0) -> None:
        self.exceptions = self
        self.run = self
        self.batches: list[int] = []
        self.open = threading.Event()
        self._down_for = down_for

    def remote(self, units: list[Unit]) -> list[Unit]:
        return units

    def get(self, units: list[Unit], timeout: float) -> list[Any]:
        self.open.wait(timeout)
        if self._down_for > 0:
            self._down_for -= 1
            raise self.RayError("restarting")
        self.batches.append(sum(len(calls) for _, _, calls in units))
        return [[key] for key, _, _ in units]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_sandbox, "_PAUSE_S", 0.001)


def test_the_queue_of_a_node_is_bounded_and_travels_in_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_sandbox, "_QUEUE", 100)
    cluster = FakeRay()
    node = ray_sandbox._Node(cluster, cluster, 1.0)
    futures: list[Any] = []
    calls = [("f", {})] * 3

    def fill() -> None:
        for number in range(1000):
            futures.append(node.submit((str(number), 0, calls)))

    filler = threading.Thread(target=fill, daemon=True)
    filler.start()
    filler.join(0.3)
    assert filler.is_alive()  # who submits waits
    # waiting in the queue, and taken by the senders
    assert len(futures) <= 100 + ray_sandbox._SENDERS * (ray_sandbox.BATCH // 3 + 2)
    cluster.open.set()
    filler.join(20)
    assert [future.result(20) for future in futures] == [[str(number)] for number in range(1000)]
    assert sum(cluster.batches) == 3000
    assert 3 < max(cluster.batches) <= ray_sandbox.BATCH
    node.stop()


@pytest.mark.usefixtures("quick")
def test_a_node_is_waited_for_while_it_restarts_and_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = FakeRay(down_for=9)
    cluster.open.set()
    node = ray_sandbox._Node(cluster, cluster, 1.0)
    assert node.ask("run", [("k", 0, [("f", {})])]) == [["k"]]
    monkeypatch.setattr(ray_sandbox, "_RESTART_S", 0.01)
    cluster._down_for = 10**6
    with pytest.raises(ray_sandbox._Lost, match="RayError: restarting"):
        node.ask("run", [("k", 1, [("f", {})])])
    node.stop()


@pytest.fixture(scope="module")
def pool(limits: SandboxLimits) -> Iterator[Any]:
    with build_sandbox(limits, RUNTIME) as sandbox:
        yield sandbox


@needs_ray
def test_values_errors_and_order_are_those_of_a_local_session(pool: Any) -> None:
    assert pool.tier in ("A", "B")
    sessions = pool.sessions([ADD] * 70 + [{"f": "import os"}])
    assert isinstance(sessions.pop(), SandboxLoadError)
    rounds = [(session, "add", {"x": k}) for k in range(150) for session in sessions[:3]]
    results = pool.call_many(rounds)  # several batches per session, each in order
    assert [r.value for r in results[::3]] == [k * (k + 1) // 2 for k in range(150)]
    every = pool.call_many([(session, "add", {"x": 0}) for session in sessions])
    assert {r.status for r in every} == {SandboxStatus.OK}
    assert sessions[0].call("add", {"y": 1}).status is SandboxStatus.EXCEPTION
    spin = pool.session({"f": "def f():\n    print('a')\n    while True: pass"})
    first, second = pool.call_many([(spin, "f", {})] * 2)
    assert (first.status, first.stdout, spin.alive) == (SandboxStatus.TIMEOUT, "a\n", False)
    assert "has ended" in second.error
    sessions[0].close()
    assert sessions[0].call("add", {"x": 1}).status is SandboxStatus.INFRA


@needs_ray
def test_a_batch_asked_twice_runs_once(pool: Any) -> None:
    session = pool.session(ADD)
    assert session.call("add", {"x": 5}).value == 5
    unit = (session.key, session.number + 1, [("add", {"x": 1})])
    asked = [session.node.ask("run", [unit])[0][0][1] for _ in range(3)]
    assert asked == [6, 6, 6]


def kill_and_wait(actor: Any) -> None:
    """Kill an actor's process and wait until it is gone: until then it goes on answering."""
    process = ray.get(actor.__ray_call__.remote(lambda _: os.getpid()))
    ray.kill(actor, no_restart=False)
    deadline = time.monotonic() + 30
    while psutil.pid_exists(process):
        assert time.monotonic() < deadline, f"actor process {process} outlives its kill"
        time.sleep(0.01)


@needs_ray
def test_a_killed_actor_loses_no_call_silently(pool: Any) -> None:
    used, fresh = pool.sessions([ADD] * 4), pool.sessions([ADD] * 4)
    pool.call_many([(session, "add", {"x": 1}) for session in used])
    kill_and_wait(pool._nodes[0].actor)
    requests = [(session, "add", {"x": 1}) for session in [*used, *fresh]]
    results = pool.call_many(requests)
    # state that is gone is said to be; where there was none yet, the call is simply run
    assert [r.status for r in results[:4]] == [SandboxStatus.INFRA] * 4
    assert [r.value for r in results[4:]] == [1] * 4
    assert pool.session(ADD).call("add", {"x": 3}).value == 3


@needs_ray
def test_an_actor_killed_in_the_middle_of_calls(pool: Any) -> None:
    slow = {"f": "import time\ndef f(x):\n    time.sleep(0.4)\n    return x"}
    sessions = pool.sessions([slow] * 6)
    actor = pool._nodes[0].actor
    threading.Timer(0.3, lambda: ray.kill(actor, no_restart=False)).start()
    results = pool.call_many([(session, "f", {"x": 1}) for session in sessions])
    assert len(results) == 6
    assert {r.status for r in results} <= {SandboxStatus.OK, SandboxStatus.INFRA}
    assert all(r.value == 1 for r in results if r.status is SandboxStatus.OK)
    time.sleep(0.1)
    assert pool.session(ADD).call("add", {"x": 3}).value == 3


@needs_ray
def test_threads_share_batches(pool: Any) -> None:
    seen: list[list[Any]] = []

    def work() -> None:
        session = pool.session(ADD)
        seen.append([session.call("add", {"x": 1}).value for _ in range(10)])

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [list(range(1, 11))] * 6
